{{- /* What pods of all services have in common. */ -}}

{{- /* Labels and annotations of a pod. Call: dict "root" $ "name" SERVICE "pod" ITS VALUES "secrets" NAMES
       "labels" FURTHER ONES. Variables of a process are read once, so a Secret that changed changes the pod. */ -}}
{{- define "tunery.podMetadata" -}}
{{- $root := .root }}
{{- $data := list }}
{{- range compact .secrets }}
{{- $data = append $data (dig "data" dict (lookup "v1" "Secret" $root.Release.Namespace .)) }}
{{- end -}}
labels:
  {{- include "tunery.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .root.Values.metrics.port | quote }}
  tunery.dev/secrets: {{ toJson $data | sha256sum }}
  {{- with .pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Account, rights and place of a pod. Call: dict "root" $ "name" SERVICE "pod" ITS VALUES "token" WHETHER IT
       ASKS THE API OF KUBERNETES */ -}}
{{- define "tunery.podSpec" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .name }}
automountServiceAccountToken: {{ .token | default false }}
enableServiceLinks: false
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- range $field, $value := pick .pod "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- if $value }}
{{ dict $field $value | toYaml }}
{{- end }}
{{- end }}
{{- if .pod.topologyKeys }}
{{- $call := . }}
topologySpreadConstraints:
  {{- range .pod.topologyKeys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tunery.selector" $call | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "tunery.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Whether a service opens what is of tenants (docs/reference/access.md): only those mount the keys. */ -}}
{{- define "tunery.opensKeys" -}}
{{- if has .name (list "billing" "eval" "gateway" "ingest" "notifier" "registry") }}yes{{ end }}
{{- end }}

{{- /* A claim of an engine stays with its gateway, as a StatefulSet keeps it. */ -}}
{{- define "tunery.gatewayKind" -}}
{{ ternary "StatefulSet" "Deployment" (and .Values.engine.enabled (not .Values.engine.ephemeral)) }}
{{- end }}

{{- /* Variables of a process, its own and those of Secrets. Call: dict "root" $ "env" ITS OWN "secrets" NAMES
       "pod" ITS VALUES "keys" WHETHER IT OPENS THEM "fields" VARIABLES FROM FIELDS OF THE POD */ -}}
{{- define "tunery.env" -}}
{{- $variables := merge (dict) .env .root.Values.env (dict
  "TUNERY_DATA_DIR" "/var/lib/tunery"
  "TUNERY_CONFINE_READ" .root.Values.storage.bases.path
  "DO_NOT_TRACK" "1"
  "HF_DATASETS_OFFLINE" "1"
  "HF_HUB_DISABLE_TELEMETRY" "1"
  "HF_HUB_OFFLINE" "1"
  "TRANSFORMERS_OFFLINE" "1"
  "WANDB_MODE" "disabled"
  "OMP_WAIT_POLICY" "PASSIVE"
  "PYTHONUNBUFFERED" "1"
  "HOME" "/tmp") }}
{{- if .keys }}
{{- $_ := set $variables "TUNERY_KEYSTORE_DIR" "/var/lib/tunery-keys/keystore" }}
{{- $_ := set $variables "TUNERY_ROOTS_DIR" "/run/secrets/roots" }}
{{- end }}
{{- if .root.Values.secrets.kafkaAuthority }}
{{- $_ := set $variables "TUNERY_KAFKA_CA_FILE" "/run/secrets/kafka/ca.crt" }}
{{- end -}}
env:
  {{- range $name, $field := .fields }}
  - name: {{ $name }}
    valueFrom:
      fieldRef: {fieldPath: {{ $field }}}
  {{- end }}
  {{- range $name, $value := $variables }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
envFrom:
  {{- range .secrets }}
  - secretRef: {name: {{ . }}}
  {{- end }}
  {{- with .pod.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* Probes at the port of metrics. Call: dict "portName" NAME */ -}}
{{- define "tunery.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .portName }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "tunery.readiness" -}}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .portName }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* Call: dict "root" $ "pod" ITS VALUES "keys" WHETHER IT OPENS THEM "bases" "read", "write" or none "data"
       WHETHER IT HAS A FOLDER */ -}}
{{- define "tunery.mounts" -}}
{{- if .data }}
- {name: data, mountPath: /var/lib/tunery}
{{- end }}
{{- if .keys }}
- {name: keys, mountPath: /var/lib/tunery-keys}
- {name: roots, mountPath: /run/secrets/roots, readOnly: true}
{{- end }}
{{- if .bases }}
- {name: bases, mountPath: {{ .root.Values.storage.bases.path }}{{ if eq .bases "read" }}, readOnly: true{{ end }}}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.secrets.kafkaAuthority }}
- {name: kafka-authority, mountPath: /run/secrets/kafka, readOnly: true}
{{- end }}
{{- with .pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* As tunery.mounts; the folder of data is the caller's. */ -}}
{{- define "tunery.volumes" -}}
{{- if .keys }}
- name: keys
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "keys") }}}
- name: roots
  {{- with .root.Values.storage.roots.csi }}
  csi:
    {{- toYaml . | nindent 4 }}
  {{- else }}
  secret: {secretName: {{ .root.Values.secrets.roots }}, defaultMode: 0440}
  {{- end }}
{{- end }}
{{- if .bases }}
- name: bases
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "bases") }}}
{{- end }}
- name: tmp
  emptyDir: {}
{{- if .root.Values.secrets.kafkaAuthority }}
- name: kafka-authority
  secret: {secretName: {{ .root.Values.secrets.kafkaAuthority }}}
{{- end }}
{{- with .pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
