{{- define "bigfleet-provider.args" -}}
{{- if .Values.kubeconfigs.secretName -}}
- --kubeconfig-dir=/etc/bigfleet/clusters
{{- else if not (or .Values.useFakeBackend .Values.config.clusters .Values.config.kubeconfig_dir .Values.config.default) -}}
{{- fail "kubeconfigs.secretName is required: a Secret with a key <cluster id>.kubeconfig for each cluster" -}}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumeMounts" -}}
{{- if .Values.kubeconfigs.secretName -}}
- {name: clusters, mountPath: /etc/bigfleet/clusters, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumes" -}}
{{- if .Values.kubeconfigs.secretName -}}
- name: clusters
  secret: {secretName: {{ .Values.kubeconfigs.secretName }}}
{{- end -}}
{{- end -}}
