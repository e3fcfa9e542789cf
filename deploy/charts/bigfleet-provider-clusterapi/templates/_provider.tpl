{{- define "bigfleet-provider.args" -}}
{{- if .Values.kubeconfig.secretName -}}
- --kubeconfig=/etc/bigfleet/management/kubeconfig
{{- else if not (or .Values.useFakeBackend .Values.serviceAccount.automountToken) -}}
{{- fail "serviceAccount.automountToken must be true, or kubeconfig.secretName given: the provider needs the API server of the management cluster" -}}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumeMounts" -}}
{{- if .Values.kubeconfig.secretName -}}
- {name: management, mountPath: /etc/bigfleet/management, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumes" -}}
{{- if .Values.kubeconfig.secretName -}}
- name: management
  secret: {secretName: {{ .Values.kubeconfig.secretName }}}
{{- end -}}
{{- end -}}
