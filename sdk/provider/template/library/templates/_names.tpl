{{- define "bigfleet-provider.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 52 characters: the StatefulSet puts the hash of a revision behind it. */}}
{{- define "bigfleet-provider.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "bigfleet-provider.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "bigfleet-provider.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.selector" -}}
app.kubernetes.io/name: {{ include "bigfleet-provider.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "bigfleet-provider.labels" -}}
{{ include "bigfleet-provider.selector" . }}
app.kubernetes.io/component: provider
app.kubernetes.io/part-of: bigfleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "bigfleet-provider.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bigfleet-provider.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.image" -}}
{{- $repository := required "image.repository is required: the image of the provider" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.tag or image.digest is required: the chart names no version" (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if or .Values.tls.issuerRef .Values.tls.required -}}
{{- printf "%s-tls" (include "bigfleet-provider.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* What a provider's chart may define again: lists that are put behind those of the library. */}}
{{- define "bigfleet-provider.args" -}}{{- end -}}
{{- define "bigfleet-provider.volumes" -}}{{- end -}}
{{- define "bigfleet-provider.volumeMounts" -}}{{- end -}}
