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

{{/* What the schema cannot say: values that do not go together. Each would start an operator that ends at once, or does something else. */}}
{{- define "operator.check" -}}
{{- $b := .Values.bootstrap -}}
{{- if and .Values.tls.secretName .Values.tls.issuerRef -}}
{{- fail "tls.secretName and tls.issuerRef are both set: the first brings a certificate, the second has one made; set one" -}}
{{- end -}}
{{- if and .Values.tls.issuerRef (not .Values.tls.issuerRef.name) -}}
{{- fail "tls.issuerRef.name is required: the cert-manager issuer" -}}
{{- end -}}
{{- if and (eq $b.renderer "template") (not $b.template) -}}
{{- fail "bootstrap.renderer is template, but bootstrap.template is empty: give the template, for example with --set-file bootstrap.template=FILE" -}}
{{- end -}}
{{- if and $b.template (has $b.renderer (list "builtin" "stub")) -}}
{{- fail (printf "bootstrap.template would be ignored with bootstrap.renderer=%s: leave the renderer at auto, or the template empty" $b.renderer) -}}
{{- end -}}
{{- if and $b.caBundle (not (contains "-----BEGIN CERTIFICATE-----" $b.caBundle)) -}}
{{- fail "bootstrap.caBundle holds no PEM certificate: give the file, for example with --set-file bootstrap.caBundle=ca.crt" -}}
{{- end -}}
{{- if and .Values.clusterID (not (regexMatch "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,252}$" .Values.clusterID)) -}}
{{- fail (printf "clusterID %q: want a letter or digit, then up to 252 letters, digits and . _ : / @ -" .Values.clusterID) -}}
{{- end -}}
{{- if and .Values.shardAddress (not (regexMatch "^[^\\s/=]+:[0-9A-Za-z-]+$" .Values.shardAddress)) -}}
{{- fail (printf "shardAddress %q: want host:port, as in bigfleet-shard-0.bigfleet-shard-headless.bigfleet-system.svc:7780" .Values.shardAddress) -}}
{{- end -}}
{{- if regexMatch ":[0-9]+$" .Values.shardAddress -}}
{{- $port := regexFind "[0-9]+$" .Values.shardAddress -}}
{{- if not (regexMatch "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$" $port) -}}
{{- fail (printf "shardAddress %s: the port is not between 1 and 65535" .Values.shardAddress) -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(cluster-id|shard-addr|namespace|metrics-addr)(=.*)?$" . -}}
{{- fail (printf "extraArgs: %s is set by a value of the chart (clusterID, shardAddress, the release's namespace, metricsPort)" .) -}}
{{- end -}}
{{- end -}}
{{- if (.Values.admissionPolicy).create -}}
{{- $policy := lookup "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" "" "capacityrequests.bigfleet.lucy.sh" -}}
{{- if and $policy (ne (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $policy) .Release.Name) -}}
{{- fail "the admission policy is applied already, by hand or by another release: delete it with kubectl delete -f deploy/admission, or set admissionPolicy.create=false" -}}
{{- end -}}
{{- end -}}
{{- if .Values.crds.install -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "capacityrequests.bigfleet.lucy.sh" -}}
{{- if $crd -}}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $crd -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $crd -}}
{{- if or (ne $release .Release.Name) (ne $namespace .Release.Namespace) -}}
{{- fail (printf "the custom resources are installed already%s: set crds.install=false" (ternary (printf ", by the release %s in %s" $release $namespace) "" (ne $release ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "operator.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if .Values.tls.issuerRef -}}
{{- printf "%s-tls" (include "operator.fullname" .) -}}
{{- else if .Values.tls.required -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?)?$" .Values.clusterID) -}}
{{- fail (printf "clusterID %s cannot be part of the name of a Secret: set tls.secretName" .Values.clusterID) -}}
{{- end -}}
{{- printf "bigfleet-cluster-%s" .Values.clusterID -}}
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
