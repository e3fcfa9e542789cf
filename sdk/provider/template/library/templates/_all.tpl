{{/* The whole release. A provider's chart has one template, which includes this. */}}
{{- define "bigfleet-provider.all" -}}
{{ include "bigfleet-provider.workload" . }}
---
{{ include "bigfleet-provider.access" . }}
{{- include "bigfleet-provider.monitors" . }}
{{- end -}}
