{{- define "podcontroller.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "podcontroller.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "podcontroller.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "podcontroller.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "podcontroller.selector" -}}
app.kubernetes.io/name: {{ include "podcontroller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "podcontroller.labels" -}}
{{ include "podcontroller.selector" . }}
app.kubernetes.io/part-of: bigfleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "podcontroller.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "podcontroller.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "podcontroller.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What would start a controller that ends at once, said before. */}}
{{- define "podcontroller.check" -}}
{{- $quantity := "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$" -}}
{{- range $pair := splitList "," .Values.bestEffortFloor -}}
{{- $parts := splitList "=" (trim $pair) -}}
{{- if or (ne (len $parts) 2) (not (first $parts)) -}}
{{- fail (printf "bestEffortFloor: %q: want name=quantity, as in cpu=10m,memory=16Mi" $pair) -}}
{{- end -}}
{{- if not (regexMatch $quantity (last $parts)) -}}
{{- fail (printf "bestEffortFloor: %q is not a quantity of %s, as in cpu=10m,memory=16Mi" (last $parts) (first $parts)) -}}
{{- end -}}
{{- end -}}
{{- range $class, $penalties := .Values.priorityClassDefaults -}}
{{- range $name, $dollars := $penalties -}}
{{- if and (kindIs "string" $dollars) (not (regexMatch $quantity $dollars)) -}}
{{- fail (printf "priorityClassDefaults.%s.%s: %q is not an amount of dollars, as in \"64\" or 500m" $class $name $dollars) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.excludeNamespaces -}}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" .) -}}
{{- fail (printf "excludeNamespaces: %q is no name of a namespace; patterns are not supported" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
