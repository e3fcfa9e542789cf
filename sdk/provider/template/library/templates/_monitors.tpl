{{- define "bigfleet-provider.monitors" -}}
{{- range $kind, $m := dict "PodMonitor" .Values.metrics.podMonitor "ServiceMonitor" .Values.metrics.serviceMonitor }}
{{- if $m.enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: {{ $kind }}
metadata:
  name: {{ include "bigfleet-provider.fullname" $ }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "bigfleet-provider.labels" $ | nindent 4 }}
    {{- with $m.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels: {{- include "bigfleet-provider.selector" $ | nindent 6 }}
  {{ ternary "podMetricsEndpoints" "endpoints" (eq $kind "PodMonitor") }}:
  - {port: metrics, interval: {{ $m.interval }}}
{{- end }}
{{- end }}
{{- end -}}
