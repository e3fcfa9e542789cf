package clusterapi

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-20.3: --check fails for a management cluster that refuses connections, and names it and why; also where no Cluster object is
// listed that it could look at.
func TestCheckAsksTheManagementCluster(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	for file, text := range map[string]string{
		kubeconfig: `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://` + addr + `"}}]}`,
		config: `templates: {c.4x: {api_version: infrastructure.cluster.x-k8s.io/v1beta2, kind: AWSMachineTemplate, name: workers}}
offerings: [{name: a, instance_type: c.4x, zone: a, capacity_type: on_demand, count: 2, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}]`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := NewCommand()
	cmd.SetArgs([]string{"--config", config, "--kubeconfig", kubeconfig, "--namespace", "fleet", "--state", "memory", "--check"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err = cmd.ExecuteContext(t.Context())
	if provider.ExitCode(err) != 2 || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "connection refused") || strings.Contains(out.String(), "all well") {
		t.Errorf("%v\n%s", err, &out)
	}
}
