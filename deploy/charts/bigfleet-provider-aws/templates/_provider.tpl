{{- define "bigfleet-provider.args" -}}
- --kubeconfig-dir=/etc/bigfleet/clusters
{{- if not .Values.useFakeBackend -}}
{{- if not .Values.kubeconfigs.secretName -}}
{{- fail "kubeconfigs.secretName is required: a Secret with a key <cluster id>.kubeconfig for each cluster" -}}
{{- end -}}
{{- if not .Values.config.launch_template -}}
{{- fail "config.launch_template is required: {name: ...} or {id: ...} of the instances' launch template" -}}
{{- end -}}
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
