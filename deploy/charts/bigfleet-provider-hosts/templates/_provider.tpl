{{- define "bigfleet-provider.args" -}}
- --inventory=/etc/bigfleet/inventory/inventory.yaml
- --agent-addr=:9010
- --kubeconfig-dir=/etc/bigfleet/clusters
{{- if not .Values.useFakeBackend -}}
{{- if not .Values.kubeconfigs.secretName -}}
{{- fail "kubeconfigs.secretName is required: a Secret with a key <cluster id>.kubeconfig for each cluster" -}}
{{- end -}}
{{- if not (or .Values.tls.secretName .Values.tls.issuerRef) -}}
{{- fail "tls.secretName or tls.issuerRef is required: agents get boot data, which is secret" -}}
{{- end -}}
{{- end -}}
{{- if .Values.power.secretName }}
- --secrets-dir=/etc/bigfleet/power
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumeMounts" -}}
- {name: inventory, mountPath: /etc/bigfleet/inventory, readOnly: true}
{{- if .Values.kubeconfigs.secretName }}
- {name: clusters, mountPath: /etc/bigfleet/clusters, readOnly: true}
{{- end -}}
{{- if .Values.power.secretName }}
- {name: power, mountPath: /etc/bigfleet/power, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "bigfleet-provider.volumes" -}}
- name: inventory
  configMap: {name: {{ include "bigfleet-provider.fullname" . }}-inventory}
{{- if .Values.kubeconfigs.secretName }}
- name: clusters
  secret: {secretName: {{ .Values.kubeconfigs.secretName }}}
{{- end -}}
{{- if .Values.power.secretName }}
- name: power
  secret: {secretName: {{ .Values.power.secretName }}}
{{- end -}}
{{- end -}}
