package capi

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/services/providers/clusterapi"

	"connectrpc.com/connect"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// asProvider, in the environment, makes the test binary the provider's program, so that it can be killed.
const asProvider = "BIGFLEET_CAPI_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" { // before any flag is read
		clusterapi.Main()
		return
	}
	os.Exit(m.Run())
}

// burstFlag is the size of the burst. As many slots are offered, with some for the suite.
var (
	burstFlag       = flag.Int("machines", 20, "machines of the burst")
	conformanceFlag = flag.Bool("conformance", false, "certify the provider on the real controllers, too; their retries make it many minutes")
)

func startProvider(t *testing.T, m *management) *conformance.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Env: []string{asProvider + "=1"}}
	config := fmt.Sprintf(`
kubeconfig: %s
namespace: %s
templates: {server: {api_version: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevMachineTemplate, name: %s}}
reconcile_interval: 1s
timeouts: {create: 1h, configure: 1h, delete: 1h, drain_extra: 1h} # a busy machine is no reason to fail
offerings:
- {name: server, instance_type: server, zone: zone-a, capacity_type: on_demand, count: %d, price_per_hour: 0.1, resources: {cpu: "4", memory: 16Gi}}
`, m.Kubeconfig(), namespace, templateName, *burstFlag+100)
	file := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"--config", file}
	t.Cleanup(func() {
		if text, err := os.ReadFile(p.LogFile()); err == nil && t.Failed() {
			t.Logf("the provider's log ends with\n%s", text[max(0, len(text)-8<<10):])
		}
	})
	p.StartT(t)
	return p
}

// PROV-28.18, PROV-29.4: on the real controllers a burst loses no machine and doubles none, and nothing is left after it. The suite certifies the provider
// on them, also when it is killed in the middle.
func TestClusterAPI(t *testing.T) {
	m := startManagement(t)
	clusters := []string{"red", "blue"}
	for _, name := range clusters {
		m.addCluster(t, name)
	}
	p := startProvider(t, m)
	t.Run("Burst", func(t *testing.T) { burst(t, m, p.Addr(), clusters) })
	if !*conformanceFlag {
		return
	}
	t.Run("Conformance", func(t *testing.T) {
		target := p.Target(conformance.Core, conformance.Cloud, conformance.Durable)
		target.Clusters = clusters
		conformance.Run(t, target, conformance.Options{})
	})
	m.until(t, "the suite has left nothing", func() (bool, string) { left := m.left(t); return len(left) == 0, fmt.Sprint(left) })
}

// burst takes all machines at once, looks, and gives them back.
func burst(t *testing.T, m *management, addr string, clusters []string) {
	machinesMax := *burstFlag
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	api := bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+addr, connect.WithGRPC())
	list := func(state bigfleetv1alpha1.MachineState) (ids []string) {
		res, err := api.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range res.Msg.GetMachines() {
			if one.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED {
				t.Fatalf("%s is FAILED: %s", one.GetId(), one.GetLastError())
			}
			if one.GetState() == state {
				ids = append(ids, one.GetId())
			}
		}
		return ids
	}
	// all waits until the whole burst is in a state. What Cluster API changes on the way is progress, too.
	all := func(state bigfleetv1alpha1.MachineState) {
		m.until(t, fmt.Sprintf("%d machines are %s", machinesMax, state), func() (bool, string) {
			n := len(list(state))
			return n == machinesMax, fmt.Sprintf("%d of %d machines, %s", n, machinesMax, m.progress(t))
		})
	}
	each := func(ids []string, call func(i int, id string) error) {
		var calls sync.WaitGroup
		places := make(chan struct{}, 50)
		for i, id := range ids {
			places <- struct{}{}
			calls.Go(func() {
				defer func() { <-places }()
				if err := call(i, id); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		calls.Wait()
	}
	ids := list(bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE)[:machinesMax]
	idle := bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	each(ids, func(_ int, id string) error {
		_, err := api.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id}))
		return err
	})
	all(idle)
	began := time.Now()
	each(ids, func(i int, id string) error {
		_, err := api.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: id, ClusterId: clusters[i%len(clusters)], BootstrapBlob: []byte("#cloud-config"),
		}))
		return err
	})
	all(bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED)
	t.Logf("%d machines configured in %s", machinesMax, time.Since(began).Round(100*time.Millisecond))
	nodes := map[string]string{}
	for _, one := range m.workers(t) {
		if !one.Status.NodeRef.IsDefined() || one.Spec.ClusterName == "" {
			t.Errorf("%s has no Node", one.Name)
		}
		key := one.Spec.ClusterName + "/" + one.Status.NodeRef.Name
		if other := nodes[key]; other != "" {
			t.Errorf("%s and %s have one Node, %s", one.Name, other, key)
		}
		nodes[key] = one.Name
		if _, evicts := one.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !evicts {
			t.Errorf("PROV-11.13: Cluster API would drain %s", one.Name)
		}
	}
	if len(nodes) != machinesMax {
		t.Errorf("%d Nodes for %d machines", len(nodes), machinesMax)
	}
	began = time.Now()
	each(ids, func(_ int, id string) error {
		_, err := api.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id}))
		return err
	})
	all(idle)
	t.Logf("%d machines drained in %s", machinesMax, time.Since(began).Round(100*time.Millisecond))
	if left := m.left(t); len(left) > 0 {
		t.Errorf("left after all drains: %v", left)
	}
}
