package bootstrap

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Data is what a template sees. Its fields are a promise to authors of templates; fields that the shard did not
// send are empty.
type Data struct {
	ClusterID      string
	Requirements   []Requirement
	MachineID      string
	Provider       string
	ProviderID     string
	Labels         map[string]string // that the node must register with; the machine id label is among them
	Taints         []Taint           // that the node must register with
	APIServer      string            // URL
	CABundle       string            // PEM
	ClusterVersion string            // of the API server, such as v1.36.3
	KubeletVersion string
	TTLSeconds     int64

	ctx    context.Context
	tokens *Tokens
	ttl    time.Duration
	token  *Token
}

// Requirement is one constraint that the node must meet.
type Requirement struct {
	Key, Operator string
	Values        []string
}

// Taint is one taint that the node must register with.
type Taint struct{ Key, Value, Effect string }

// Token returns a bootstrap token of this machine's own, such as abcdef.0123456789abcdef. It is minted at the first call.
func (d *Data) Token() (string, error) {
	if d.token == nil {
		if d.tokens == nil {
			return "", errors.New("this operator issues no bootstrap tokens")
		}
		t, err := d.tokens.Take(d.ctx, d.MachineID, d.ttl)
		if err != nil {
			return "", err
		}
		d.token = t
	}
	return d.token.ID + "." + d.token.secret, nil
}

// KubeconfigYAML returns a kubeconfig with which a kubelet asks for its certificate.
func (d *Data) KubeconfigYAML() (string, error) {
	if d.APIServer == "" || d.CABundle == "" {
		return "", errors.New("a kubeconfig needs the API server's URL (--apiserver-url) and its CA (--ca-bundle-file)")
	}
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(kubeconfigYAML, base64.StdEncoding.EncodeToString([]byte(d.CABundle)), d.APIServer, token), nil
}

const kubeconfigYAML = `apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    certificate-authority-data: %s
    server: %q
users:
- name: kubelet-bootstrap
  user:
    token: %q
contexts:
- name: bootstrap
  context:
    cluster: cluster
    user: kubelet-bootstrap
current-context: bootstrap
`

// NodeLabels returns the labels as the kubelet's flag --node-labels takes them, sorted. What is not a label, and what a
// kubelet may not set, is left out: with it the Node could not register, and a line break would end the flag.
func (d *Data) NodeLabels() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		if !kubeletMaySet(k) || len(validation.IsQualifiedName(k)) > 0 || len(validation.IsValidLabelValue(d.Labels[k])) > 0 {
			continue
		}
		out = append(out, k+"="+d.Labels[k])
	}
	return strings.Join(out, ",")
}

// kubeletMaySet says whether a kubelet may register with a label: of the reserved prefixes it may set only a few.
func kubeletMaySet(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return true
	}
	if domain != "kubernetes.io" && domain != "k8s.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasSuffix(domain, ".k8s.io") {
		return true
	}
	if domain == "kubelet.kubernetes.io" || domain == "node.kubernetes.io" || strings.HasSuffix(domain, ".kubelet.kubernetes.io") || strings.HasSuffix(domain, ".node.kubernetes.io") {
		return true
	}
	switch key {
	case "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "beta.kubernetes.io/arch", "beta.kubernetes.io/os",
		"beta.kubernetes.io/instance-type":
		return true
	}
	return false
}

// NodeTaints returns the taints as the kubelet's flag --register-with-taints takes them. One that is not a taint is an error:
// without it, Pods that must stay away would come.
func (d *Data) NodeTaints() (string, error) {
	var out []string
	for _, t := range d.Taints {
		if len(validation.IsQualifiedName(t.Key)) > 0 || len(validation.IsValidLabelValue(t.Value)) > 0 || !slices.Contains(effects, t.Effect) {
			return "", fmt.Errorf("%q is not a taint that a kubelet can register with", t.Key+"="+t.Value+":"+t.Effect)
		}
		out = append(out, t.Key+"="+t.Value+":"+t.Effect)
	}
	return strings.Join(out, ","), nil
}

var effects = []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}

// check refuses names that would end the line they stand in, and begin one of their own.
func (d *Data) check() error {
	for what, text := range map[string]string{"machine id": d.MachineID, "provider's name": d.Provider, "provider id": d.ProviderID} {
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return problem(pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE, false, "the %s %q holds a space or a control character: boot data cannot carry it", what, text)
		}
	}
	return nil
}

// functions are those of a template beside the standard ones (OP-7.6). None reads files, environment, network or time.
func functions() template.FuncMap {
	indent := func(n int, s string) (string, error) {
		if n < 0 || n > 100 {
			return "", fmt.Errorf("indent by %d: want 0 to 100", n)
		}
		pad := strings.Repeat(" ", n)
		return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
	}
	return template.FuncMap{
		"b64enc": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"indent": indent,
		"nindent": func(n int, s string) (string, error) {
			out, err := indent(n, s)
			return "\n" + out, err
		},
		"quote": func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"join":  func(sep string, list []string) string { return strings.Join(list, sep) },
		"default": func(fallback, v any) any {
			if truth, ok := template.IsTrue(v); !ok || !truth {
				return fallback
			}
			return v
		},
		"required": func(message string, v any) (any, error) {
			if truth, ok := template.IsTrue(v); !ok || !truth {
				return nil, errors.New(message)
			}
			return v, nil
		},
	}
}
