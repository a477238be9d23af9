{{- /* Labels by which objects are selected. Call: dict "root" $ "name" SERVICE */ -}}
{{- define "tunery.selector" -}}
app.kubernetes.io/name: tunery
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "tunery.labels" -}}
{{ include "tunery.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "tunery.image" -}}
{{- $image := index .root.Values.images .image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "tunery.claim" -}}
{{- $volume := index .root.Values.storage .volume -}}
{{ $volume.existingClaim | default (printf "%s-%s" .root.Release.Name .volume) }}
{{- end }}

{{- /* A rule of egress: to the DNS. */ -}}
{{- define "tunery.dns" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
