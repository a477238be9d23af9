{{- /* Pods and containers that differ in little. */ -}}

{{- define "tunery.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
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

{{- /* Variables of a process. Call: dict "root" $ "env" ITS OWN "keys" WHETHER IT OPENS THEM */ -}}
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
{{- end }}
{{- if .root.Values.secrets.kafkaAuthority }}
{{- $_ := set $variables "TUNERY_KAFKA_CA_FILE" "/run/secrets/kafka/ca.crt" }}
{{- end }}
{{- range $name, $value := $variables }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- /* Ports and probes of its own. Call: dict "root" $ "port" NUMBER "portName" NAME */ -}}
{{- define "tunery.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .portName }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "tunery.mounts" -}}
- {name: data, mountPath: /var/lib/tunery}
{{- if .keys }}
- {name: keys, mountPath: /var/lib/tunery-keys}
{{- end }}
- {name: bases, mountPath: {{ .root.Values.storage.bases.path }}{{ if not .writes }}, readOnly: true{{ end }}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.secrets.kafkaAuthority }}
- {name: kafka-authority, mountPath: /run/secrets/kafka, readOnly: true}
{{- end }}
{{- end }}

{{- define "tunery.volumes" -}}
{{- if .keys }}
- name: keys
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "keys") }}}
{{- end }}
- name: bases
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "bases") }}}
- name: tmp
  emptyDir: {}
{{- if .root.Values.secrets.kafkaAuthority }}
- name: kafka-authority
  secret: {secretName: {{ .root.Values.secrets.kafkaAuthority }}}
{{- end }}
{{- end }}
