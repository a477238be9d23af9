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

{{- /* Variables of a process. Call: dict "root" $ "env" ITS OWN "command" KEYS BY SECRET OR "" */ -}}
{{- define "tunery.env" -}}
{{- $variables := merge (dict) .env .root.Values.env (dict
  "TUNERY_DATA_DIR" "/var/lib/tunery"
  "TUNERY_KEYSTORE_DIR" "/var/lib/tunery-keys/keystore"
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
- {name: keys, mountPath: /var/lib/tunery-keys}
- {name: bases, mountPath: {{ .root.Values.storage.bases.path }}{{ if not .writes }}, readOnly: true{{ end }}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.secrets.kafkaAuthority }}
- {name: kafka-authority, mountPath: /run/secrets/kafka, readOnly: true}
{{- end }}
{{- end }}

{{- define "tunery.volumes" -}}
- name: keys
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "keys") }}}
- name: bases
  persistentVolumeClaim: {claimName: {{ include "tunery.claim" (dict "root" .root "volume" "bases") }}}
- name: tmp
  emptyDir: {}
{{- if .root.Values.secrets.kafkaAuthority }}
- name: kafka-authority
  secret: {secretName: {{ .root.Values.secrets.kafkaAuthority }}}
{{- end }}
{{- end }}
