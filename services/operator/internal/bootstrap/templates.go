package bootstrap

// stubTemplate is for clusters whose nodes need no boot data: simulated ones.
const stubTemplate = `# BigFleet stub boot data for machine {{ .MachineID | default "unknown" }} of cluster {{ .ClusterID }}: it starts nothing.
`

// builtInTemplate is cloud-init for images that carry a kubelet as a systemd unit with the drop-in directory of the
// usual packages. It writes everything that the kubelet needs to ask for its certificate and to register.
const builtInTemplate = `#cloud-config
# Written by BigFleet for machine {{ .MachineID | default "unknown" }} of cluster {{ .ClusterID }}.
write_files:
- path: /etc/kubernetes/pki/ca.crt
  owner: root:root
  permissions: "0644"
  encoding: b64
  content: {{ .CABundle | b64enc }}
- path: /etc/kubernetes/bootstrap-kubelet.conf
  owner: root:root
  permissions: "0600"
  encoding: b64
  content: {{ .KubeconfigYAML | b64enc }}
- path: /etc/kubernetes/kubelet-config.yaml
  owner: root:root
  permissions: "0644"
  content: |
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    authentication:
      anonymous:
        enabled: false
      webhook:
        enabled: true
      x509:
        clientCAFile: /etc/kubernetes/pki/ca.crt
    authorization:
      mode: Webhook
    cgroupDriver: systemd
    rotateCertificates: true
- path: /etc/systemd/system/kubelet.service.d/90-bigfleet.conf
  owner: root:root
  permissions: "0644"
  content: |
    [Service]
    ExecStart=
    ExecStart=/usr/bin/kubelet \
      --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
      --kubeconfig=/etc/kubernetes/kubelet.conf \
      --cert-dir=/var/lib/kubelet/pki \
      --config=/etc/kubernetes/kubelet-config.yaml
{{- with .NodeLabels }} \
      --node-labels={{ . }}
{{- end }}
{{- with .NodeTaints }} \
      --register-with-taints={{ . }}
{{- end }}
{{- with .ProviderID }} \
      --provider-id={{ . }}
{{- end }}
runcmd:
- [systemctl, daemon-reload]
- [systemctl, enable, --now, kubelet]
`
