{{- define "bigfleet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The helpers below take {root, role}: role is coordinator, shard or console. */}}
{{- define "bigfleet.roleName" -}}
{{ include "bigfleet.fullname" .root }}-{{ .role }}
{{- end -}}

{{/* The headless Service, whose name is part of every address that others keep. */}}
{{- define "bigfleet.headless" -}}
{{- include "bigfleet.roleName" . -}}{{- if eq .role "shard" }}-headless{{ end -}}
{{- end -}}

{{- define "bigfleet.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "bigfleet.labels" -}}
{{ include "bigfleet.selector" . }}
app.kubernetes.io/part-of: bigfleet
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "bigfleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bigfleet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bigfleet.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "bigfleet.coordinatorPeers" -}}
{{- $name := include "bigfleet.roleName" (dict "root" . "role" "coordinator") -}}
{{- $peers := list -}}
{{- range $i := until (int .Values.coordinator.replicas) -}}
{{- $pod := printf "%s-%d" $name $i -}}
{{- $peers = append $peers (printf "%s=%s.%s.%s.svc:%d" $pod $pod $name $.Release.Namespace (int $.Values.coordinator.service.grpcPort)) -}}
{{- end -}}
{{- join "," $peers -}}
{{- end -}}

{{- define "bigfleet.coordinatorAddr" -}}
{{- $given := .Values.shard.coordinatorAddr -}}
{{- if eq $given "none" -}}
{{- else if $given -}}
{{- $given -}}
{{- else if .Values.coordinator.enabled -}}
{{- include "bigfleet.coordinators" . -}}
{{- end -}}
{{- end -}}

{{/* All replicas of this release's coordinator. */}}
{{- define "bigfleet.coordinators" -}}
{{- $name := include "bigfleet.roleName" (dict "root" . "role" "coordinator") -}}
{{- $all := list -}}
{{- range $i := until (int .Values.coordinator.replicas) -}}
{{- $all = append $all (printf "%s-%d.%s.%s.svc:%d" $name $i $name $.Release.Namespace (int $.Values.coordinator.service.grpcPort)) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{/* "one" Secret for all Pods, one "each", none with a key of the "csi" driver, or empty for plaintext. */}}
{{- define "bigfleet.tlsKind" -}}
{{- $tls := (index .root.Values .role).tls -}}
{{- $issuer := include "bigfleet.issuer" . -}}
{{- if and $tls.secretName $tls.perOrdinal -}}each
{{- else if $tls.secretName -}}one
{{- else if and $issuer (fromJson $issuer).csi -}}csi
{{- else if or $issuer .root.Values.requireTLS -}}{{ ternary "one" "each" (eq .role "console") }}
{{- end -}}
{{- end -}}

{{/* The issuer of the role's certificates and whether the CSI driver asks it, as JSON; or empty. The console has those of the processes that it asks. */}}
{{- define "bigfleet.issuer" -}}
{{- $v := .root.Values -}}
{{- $own := (index $v .role).tls -}}
{{- $from := list $own -}}
{{- if eq .role "console" -}}
{{- if $v.coordinator.enabled }}{{ $from = append $from $v.coordinator.tls }}{{ end -}}
{{- if $v.shard.enabled }}{{ $from = append $from $v.shard.tls }}{{ end -}}
{{- end -}}
{{- $found := dict -}}
{{- range $from -}}
{{- if and .issuerRef (not $found) }}{{ $found = dict "ref" .issuerRef "csi" (or .csi $own.csi) }}{{ end -}}
{{- end -}}
{{- with $found }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* The role's certificates come from the chart's own authority. */}}
{{- define "bigfleet.ownTLS" -}}
{{- $r := index .root.Values .role -}}
{{- if and $r.enabled .root.Values.requireTLS (not $r.tls.secretName) (not (include "bigfleet.issuer" .)) -}}true{{- end -}}
{{- end -}}

{{/* Hosts and ports of all providers, without the names that may stand before them. */}}
{{- define "bigfleet.providerAddresses" -}}
{{- $s := .Values.shard -}}
{{- $addresses := list $s.provider.addr -}}
{{- range $s.providers -}}{{- $addresses = append $addresses .address -}}{{- end -}}
{{- range $s.perShard -}}{{- range (index . "provider-addr") -}}{{- $addresses = append $addresses (last (splitList "=" .)) -}}{{- end -}}{{- end -}}
{{- join "," (uniq (compact $addresses)) -}}
{{- end -}}

{{- define "bigfleet.tlsSecret" -}}
{{- $tls := (index .root.Values .role).tls -}}
{{- default (printf "%s-tls" (include "bigfleet.roleName" .)) $tls.secretName -}}
{{- end -}}

{{/* A StatefulSet cannot mount one Secret in each Pod. So that a shard does not read the keys of others, a container that runs nothing else mounts all of them and
copies its own (OPS-8.4). One shard has no others, and coordinators trust each other. */}}
{{- define "bigfleet.copiesKey" -}}
{{- if and (eq .role "shard") (eq (include "bigfleet.tlsKind" .) "each") (gt (int .root.Values.shard.replicas) 1) -}}true{{- end -}}
{{- end -}}

{{/* That container: {root, role, once}. */}}
{{- define "bigfleet.keyContainer" -}}
name: {{ ternary "first-key" "key" .once }}
image: {{ include "bigfleet.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext: {{- toYaml .root.Values.securityContext | nindent 2 }}
resources:
  requests: {cpu: 5m, memory: 32Mi}
  limits: {memory: 128Mi}
env:
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
args:
- certs
- follow
- /etc/bigfleet/keys/$(POD_NAME)
- /etc/bigfleet/tls/$(POD_NAME)
{{- if .once }}
- --once
{{- end }}
volumeMounts:
- {name: keys, mountPath: /etc/bigfleet/keys, readOnly: true}
- {name: tls, mountPath: /etc/bigfleet/tls}
{{- end -}}

{{/* A certificate names its process, so each Pod reads a directory of its own name. */}}
{{- define "bigfleet.tlsArgs" -}}
{{- $dir := ternary "/etc/bigfleet/tls/$(POD_NAME)" "/etc/bigfleet/tls" (eq (include "bigfleet.tlsKind" .) "each") -}}
{{- if include "bigfleet.tlsKind" . }}
- --tls-cert={{ $dir }}/tls.crt
- --tls-key={{ $dir }}/tls.key
- --tls-ca={{ $dir }}/ca.crt
{{- end }}
{{- if .root.Values.requireTLS }}
- --require-tls
{{- end }}
{{- end -}}

{{- define "bigfleet.tlsVolume" -}}
{{- $secret := include "bigfleet.tlsSecret" . -}}
{{- if eq (include "bigfleet.tlsKind" .) "one" }}
- name: tls
  secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- else if eq (include "bigfleet.tlsKind" .) "csi" }}
{{- if eq .role "console" }}
{{- include "bigfleet.csiVolume" (dict "root" .root "role" .role "uri" "bigfleet://readonly") }}
{{- else }}
{{- $name := include "bigfleet.roleName" . }}
{{- $headless := include "bigfleet.headless" . }}
{{- $names := list (printf "${POD_NAME}.%s.${POD_NAMESPACE}.svc" $headless) (printf "%s.${POD_NAMESPACE}.svc" $headless) }}
{{- if eq .role "shard" }}{{ $names = append $names (printf "%s.${POD_NAMESPACE}.svc" $name) }}{{ end }}
{{- include "bigfleet.csiVolume" (dict "root" .root "role" .role "uri" (printf "bigfleet://%s/${POD_NAME}" .role) "names" $names) }}
{{- end }}
{{- else if eq (include "bigfleet.tlsKind" .) "each" }}
{{- if include "bigfleet.copiesKey" . }}
- name: tls
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
- name: {{ ternary "keys" "tls" (ne (include "bigfleet.copiesKey" .) "") }}
  projected:
    defaultMode: 0440
    sources:
    {{- $pod := include "bigfleet.roleName" . }}
    {{- range $i := until (int (index .root.Values .role).replicas) }}
    - secret:
        name: {{ $secret }}-{{ $i }}
        # A Pod starts before the Secrets of the others exist.
        optional: true
        items:
        {{- range $file := list "tls.crt" "tls.key" "ca.crt" }}
        - {key: {{ $file }}, path: {{ $pod }}-{{ $i }}/{{ $file }}}
        {{- end }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* A key that is made on the node for this Pod alone, and renewed there. */}}
{{- define "bigfleet.csiVolume" -}}
{{- $issuer := (include "bigfleet.issuer" . | fromJson).ref }}
- name: tls
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: {{ required "tls.csi needs tls.issuerRef.name" $issuer.name }}
      csi.cert-manager.io/issuer-kind: {{ default "Issuer" $issuer.kind }}
      csi.cert-manager.io/issuer-group: {{ default "cert-manager.io" $issuer.group }}
      csi.cert-manager.io/uri-sans: {{ .uri }}
      {{- with .names }}
      csi.cert-manager.io/dns-names: {{ join "," . | quote }}
      {{- end }}
      csi.cert-manager.io/key-usages: client auth,server auth
      {{- with .root.Values.podSecurityContext.fsGroup }}
      csi.cert-manager.io/fs-group: {{ . | quote }}
      {{- end }}
{{- end -}}

{{/* What every role says of its Pods, but the container. */}}
{{- define "bigfleet.podSpec" -}}
{{- $v := .root.Values -}}
serviceAccountName: {{ include "bigfleet.serviceAccount" .root }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
securityContext: {{- toYaml $v.podSecurityContext | nindent 2 }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $v.topologySpreadConstraints }}
{{- toYaml $v.topologySpreadConstraints | nindent 0 }}
{{- else }}
{{- $hard := and (eq .role "coordinator") $v.coordinator.requireZones (gt (int $v.coordinator.replicas) 1) }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" $hard }}
  labelSelector:
    matchLabels: {{- include "bigfleet.selector" . | nindent 6 }}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "bigfleet.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "bigfleet.podMeta" -}}
labels:
  {{- include "bigfleet.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}

{{- define "bigfleet.container" -}}
{{- $v := .root.Values -}}
image: {{ include "bigfleet.image" .root | quote }}
imagePullPolicy: {{ $v.image.pullPolicy }}
securityContext: {{- toYaml $v.securityContext | nindent 2 }}
resources: {{- toYaml (index $v .role).resources | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
env:
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- with $v.extraEnv }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end -}}

{{- define "bigfleet.commonArgs" -}}
- --log-format={{ .root.Values.logFormat }}
- --log-level={{ .root.Values.logLevel }}
{{- with .root.Values.otlpEndpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- with index .root.Values.extraArgs .role }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end -}}

{{- define "bigfleet.claim" -}}
{{- $s := (index .root.Values .role).storage -}}
- metadata:
    name: data
    labels: {{- include "bigfleet.selector" . | nindent 6 }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with $s.storageClassName }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ $s.size }}}}
{{- end -}}

{{/* The Pod that makes or renews certificates: {root, name, ca, secrets}. */}}
{{- define "bigfleet.authorityPod" -}}
{{- $v := .root.Values -}}
metadata:
  labels: {{- include "bigfleet.labels" (dict "root" .root "role" "authority") | nindent 4 }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ .name }}
  automountServiceAccountToken: true
  securityContext: {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 2 }}
  {{- end }}
  containers:
  - name: authority
    image: {{ include "bigfleet.image" .root | quote }}
    imagePullPolicy: {{ $v.image.pullPolicy }}
    securityContext: {{- toYaml $v.securityContext | nindent 6 }}
    resources: {{- toYaml $v.authority.resources | nindent 6 }}
    args:
    - certs
    - secrets
    - --namespace={{ .root.Release.Namespace }}
    - --authority={{ .ca }}
    {{- range .secrets }}
    - --secret={{ . }}
    {{- end }}
{{- end -}}
