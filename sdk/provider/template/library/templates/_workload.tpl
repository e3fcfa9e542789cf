{{- define "bigfleet-provider.workload" -}}
{{- $tls := include "bigfleet-provider.tlsSecret" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "bigfleet-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
data:
  config.yaml: {{- toYaml .Values.config | toYaml | nindent 4 }}
---
# One process holds the state file. A StatefulSet never starts a second Pod before the first is known to be gone.
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ include "bigfleet-provider.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "bigfleet-provider.labels" . | nindent 4 }}
spec:
  replicas: 1
  serviceName: {{ include "bigfleet-provider.fullname" . }}
  podManagementPolicy: Parallel # a Pod that cannot start is replaced by an upgrade that can
  selector:
    matchLabels: {{- include "bigfleet-provider.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "bigfleet-provider.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        checksum/config: {{ toYaml .Values.config | sha256sum }}
        {{- with .Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "bigfleet-provider.serviceAccount" . }}
      automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- toYaml .Values.podSecurityContext | nindent 8 }}
      containers:
      - name: provider
        image: {{ include "bigfleet-provider.image" . | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
        - --config=/etc/bigfleet/config/config.yaml
        - --addr=:{{ .Values.service.rpcPort }}
        - --metrics-addr=:{{ .Values.service.metricsPort }}
        - --data-dir=/var/lib/bigfleet
        - --log-format={{ .Values.logFormat }}
        - --log-level={{ .Values.logLevel }}
        {{- with .Values.otlpEndpoint }}
        - --otlp-endpoint={{ . }}
        {{- end }}
        {{- with .Values.provider }}
        - --provider={{ . }}
        {{- end }}
        {{- with .Values.adoptStore }}
        - --adopt-store={{ . }}
        {{- end }}
        {{- if .Values.useFakeBackend }}
        - --use-fake-backend
        {{- end }}
        {{- if $tls }}
        - --tls-cert=/etc/bigfleet/tls/tls.crt
        - --tls-key=/etc/bigfleet/tls/tls.key
        - --tls-ca=/etc/bigfleet/tls/ca.crt
        - --require-tls
        - --shard-san={{ ternary "on" "off" .Values.tls.shardSAN }}
        {{- end }}
        {{- with include "bigfleet-provider.args" . }}{{ . | nindent 8 }}{{ end }}
        {{- with .Values.extraArgs }}{{ toYaml . | nindent 8 }}{{ end }}
        env:
        {{- $own := false }}
        {{- range .Values.extraEnv }}{{ if eq .name "GOMEMLIMIT" }}{{ $own = true }}{{ end }}{{ end }}
        {{- if not $own }}
        # As many megabytes as the limit has mebibytes: 95 % of it. The program collects earlier when it comes near.
        - name: MEMORY_LIMIT_MIB
          valueFrom: {resourceFieldRef: {containerName: provider, resource: limits.memory, divisor: 1Mi}}
        - {name: GOMEMLIMIT, value: "$(MEMORY_LIMIT_MIB)000000"}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .Values.envFrom }}
        envFrom: {{- toYaml . | nindent 8 }}
        {{- end }}
        ports:
        - {name: rpc, containerPort: {{ .Values.service.rpcPort }}}
        - {name: metrics, containerPort: {{ .Values.service.metricsPort }}}
        # A start reads the whole state: 5 s for 500,000 machines, and then describes the hosts.
        startupProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 2, failureThreshold: 150}
        livenessProbe: {httpGet: {path: /healthz, port: metrics}, periodSeconds: 10, failureThreshold: 6}
        readinessProbe: {httpGet: {path: /readyz, port: metrics}, periodSeconds: 5}
        resources: {{- toYaml .Values.resources | nindent 10 }}
        securityContext: {{- toYaml .Values.securityContext | nindent 10 }}
        volumeMounts:
        - {name: config, mountPath: /etc/bigfleet/config, readOnly: true}
        - {name: data, mountPath: /var/lib/bigfleet}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/bigfleet/tls, readOnly: true}
        {{- end }}
        {{- with include "bigfleet-provider.volumeMounts" . }}{{ . | nindent 8 }}{{ end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
      volumes:
      - name: config
        configMap: {name: {{ include "bigfleet-provider.fullname" . }}}
      {{- if not .Values.persistence.enabled }}
      - {name: data, emptyDir: {}}
      {{- else if .Values.persistence.existingClaim }}
      - name: data
        persistentVolumeClaim: {claimName: {{ .Values.persistence.existingClaim }}}
      {{- end }}
      {{- if $tls }}
      - name: tls
        secret: {secretName: {{ $tls }}}
      {{- end }}
      {{- with include "bigfleet-provider.volumes" . }}{{ . | nindent 6 }}{{ end }}
      {{- with .Values.extraVolumes }}{{ toYaml . | nindent 6 }}{{ end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) }}
  # The claim outlives the release: it says which machines are rented.
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
  volumeClaimTemplates:
  - metadata:
      name: data
      labels: {{- include "bigfleet-provider.selector" . | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .Values.persistence.storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ .Values.persistence.size }}}}
  {{- end }}
{{- end -}}
