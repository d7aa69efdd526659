{{- define "reexpand.name" -}}
{{- if contains "reexpand" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-reexpand" (.Release.Name | trunc 31 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "reexpand.selector" -}}
app.kubernetes.io/name: reexpand
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "reexpand.metadata" -}}
labels:
  {{- include "reexpand.selector" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "reexpand.tokenSecret" -}}
{{ .Values.console.tokenSecretName | default (printf "%s-http" (include "reexpand.name" .)) }}
{{- end }}

{{- /* TCP ports that the drivers need: brokers, storage, and others. */}}
{{- define "reexpand.ports" -}}
{{- $ports := list }}
{{- range splitList "," .Values.kafka.bootstrapServers }}{{ $ports = append $ports (splitList ":" . | last | int) }}{{ end }}
{{- if .Values.checkpoint.s3.uri }}
{{- $url := urlParse (.Values.checkpoint.s3.endpoint | default "https://amazonaws.com") }}
{{- $given := regexFind ":[0-9]+$" $url.host | trimPrefix ":" }}
{{- $ports = append $ports ($given | default (eq $url.scheme "https" | ternary "443" "80") | int) }}
{{- end }}
{{- range .Values.networkPolicy.extraPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- $ports | uniq | toJson }}
{{- end }}
