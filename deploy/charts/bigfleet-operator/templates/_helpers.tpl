{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "operator.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/part-of: bigfleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "operator.shardAddress" -}}
{{- $address := required "shardAddress is required: host:port of this cluster's shard" .Values.shardAddress -}}
{{- if regexMatch "^bigfleet-shard(\\.[a-z0-9-]+(\\.svc(\\..*)?)?)?:[0-9]+$" $address -}}
{{- fail (printf "shardAddress %s names the Service of all shards; a cluster belongs to one shard. Name its Pod: bigfleet-shard-<n>.bigfleet-shard-headless.<namespace>.svc:7780" $address) -}}
{{- end -}}
{{- $address -}}
{{- end -}}

{{- define "operator.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if .Values.tls.issuerRef -}}
{{- printf "%s-tls" (include "operator.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Whether the renderer hands out bootstrap tokens, so that it needs the right to mint them. */}}
{{- define "operator.tokens" -}}
{{- $b := .Values.bootstrap -}}
{{- $template := and $b.template (ne $b.renderer "builtin") -}}
{{- if eq $b.renderer "stub" -}}
{{- else if $template -}}
{{- if regexMatch "\\.(Token|KubeconfigYAML)" $b.template -}}true{{- end -}}
{{- else if ne $b.renderer "template" -}}true{{- end -}}
{{- end -}}
