package controlplane

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// StatusByTest is the annotation, with value "custom", of Nodes whose status kwok leaves alone.
const StatusByTest = "kwok.x-k8s.io/status"

// path returns the path of a file in the directory of the control plane.
func (cp *ControlPlane) path(parts ...string) string {
	return filepath.Join(append([]string{cp.dir.path}, parts...)...)
}

// writeFiles fills the directory with all that the components read.
func (cp *ControlPlane) writeFiles() error {
	for _, dir := range []string{"pki", "config", "users", "tmp", "logs"} {
		if err := os.Mkdir(cp.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := cp.writePKI(); err != nil {
		return err
	}
	if err := cp.writeKubeconfig(cp.Kubeconfig(), "admin", &clientcmdapi.AuthInfo{Token: cp.token}); err != nil {
		return err
	}
	scheduler := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": cp.Kubeconfig(), "qps": 1000, "burst": 2000},
		"leaderElection":   map[string]any{"leaderElect": false},
	}
	if err := cp.writeYAML("scheduler.yaml", scheduler); err != nil {
		return err
	}
	// kwok works on 4 objects at a time by default, each a round trip to the apiserver: a burst of Pods would queue. Kubelets do
	// not wait for each other.
	kwok := map[string]any{
		"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration",
		"options": map[string]any{
			"podPlayStageParallelism": 16, "nodePlayStageParallelism": 64,
			"nodeLeaseParallelism": 64, "podsOnNodeSyncParallelism": 4,
			// A test plays the kubelet of a Node with this annotation itself: it stays what the test says.
			"disregardStatusWithAnnotationSelector": StatusByTest + "=custom",
		},
	}
	return cp.writeYAML("kwok.yaml", kwok)
}

func (cp *ControlPlane) writeYAML(name string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(cp.path("config", name), text, 0o600)
}

// writePKI makes the authority and everything it signs, the service account key, and the administrator's token.
func (cp *ControlPlane) writePKI() (err error) {
	if cp.ca, err = newAuthority("bigfleet-e2e-" + cp.cfg.Name); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"127.0.0.1", "::1", serviceIP}
	if cp.cfg.Address != "" {
		names = append(names, cp.cfg.Address)
	}
	serving, err := cp.ca.serving(names...)
	if err != nil {
		return err
	}
	private, public, err := newServiceAccountKey()
	if err != nil {
		return err
	}
	cp.token = rand.Text()
	for name, content := range map[string][]byte{
		"ca.crt": cp.ca.certPEM, "ca.key": cp.ca.keyPEM,
		"serving.crt": serving.certPEM, "serving.key": serving.keyPEM,
		"sa.key": private, "sa.pub": public,
		"tokens.csv": fmt.Appendf(nil, "%s,admin,admin,%q\n", cp.token, "system:masters"),
	} {
		if err := os.WriteFile(cp.path("pki", name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (cp *ControlPlane) writeKubeconfig(path, user string, auth *clientcmdapi.AuthInfo) error {
	name := cp.cfg.Name
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cp.Endpoint(), CertificateAuthorityData: cp.ca.certPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: auth},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path)
}

// anonymousConfig trusts the control plane and names no user.
func (cp *ControlPlane) anonymousConfig() *rest.Config {
	return &rest.Config{
		Host:            cp.Endpoint(),
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.CACertificate()},
		QPS:             -1, // tests wait for the cluster, not for their own client
	}
}
