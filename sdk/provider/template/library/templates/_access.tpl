{{- define "bigfleet-provider.access" -}}
{{- $tls := include "bigfleet-provider.tlsSecret" . -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "bigfleet-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
  {{- with .Values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector: {{- include "bigfleet-provider.selector" . | nindent 4 }}
  ports:
  - {name: rpc, port: {{ .Values.service.rpcPort }}, targetPort: rpc, appProtocol: {{ ternary "https" "kubernetes.io/h2c" (ne $tls "") }}}
  - {name: metrics, port: {{ .Values.service.metricsPort }}, targetPort: metrics}
{{- if .Values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "bigfleet-provider.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- if .Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "bigfleet-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "bigfleet-provider.selector" . | nindent 6 }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
---
# Shards dial the provider. What it may dial itself is the cloud's business and stays open.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "bigfleet-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "bigfleet-provider.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
  - ports:
    - {protocol: TCP, port: rpc}
    from: {{- toYaml .Values.networkPolicy.from | nindent 4 }}
  - ports:
    - {protocol: TCP, port: metrics}
    {{- with .Values.networkPolicy.metricsFrom }}
    from: {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- if and .Values.tls.issuerRef (not .Values.tls.secretName) }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $tls }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
spec:
  secretName: {{ $tls }}
  {{- $name := include "bigfleet-provider.fullname" . }}
  dnsNames:
  - {{ $name }}
  - {{ $name }}.{{ .Release.Namespace }}
  - {{ $name }}.{{ .Release.Namespace }}.svc
  - {{ $name }}.{{ .Release.Namespace }}.svc.cluster.local
  usages: [server auth]
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  issuerRef: {{- toYaml .Values.tls.issuerRef | nindent 4 }}
{{- end }}
{{- end -}}
