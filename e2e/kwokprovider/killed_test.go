package kwokprovider

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scenario 62, PROV-12.5, 7.5, 18.2, 18.4: the program is killed (SIGKILL) after it made the Node and before it could store
// that the machine is CONFIGURED; another machine's Configure had only been acknowledged. The first answers after the restart
// say FAILED, interrupted. No second Node appears, whichever caller asks for it; an operator's order removes the one there is.
func TestKilledBetweenNodeAndCommit(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	p := startProgram(t, `
provider: kw
offerings:
- {name: small, instance_type: t.4x, zone: z-1a, capacity_type: on_demand, count: 2, price_per_hour: 0.1, resources: {cpu: "4", memory: 16Gi}}
reconcile_interval: 300ms
retention: {failed: 300ms, orphan: 300ms}
`, "--kubeconfig", cp.Kubeconfig())
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client, url := &http.Client{Transport: transport}, "http://"+p.addr
	r := &running{
		CapacityProviderClient: bigfleetv1alpha1connect.NewCapacityProviderClient(client, url, connect.WithGRPC()),
		admin:                  bigfleetv1alpha1connect.NewProviderAdminClient(client, url, connect.WithGRPC()),
	}
	const made, asked = "kw-small-0", "kw-small-1"
	r.create(t, made)
	r.create(t, asked)
	// No kubelet runs, so the Node appears and no CONFIGURED can be stored.
	if err := cp.Component(controlplane.Kwok).Pause(); err != nil {
		t.Fatal(err)
	}
	r.configure(t, made, "red")
	waitFor(t, "the node", func(context.Context) bool { return node(t, cp, made) != nil })
	uid := node(t, cp, made).UID
	r.configure(t, asked, "red")
	if err := p.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.Component(controlplane.Kwok).Resume(); err != nil {
		t.Fatal(err)
	}
	transport.CloseIdleConnections()
	if _, err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := r.get(t, made); m.GetState() != failed || m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED || m.GetCluster() != "red" {
		t.Errorf("the first answer after the restart: %v", m)
	}
	_, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
		MachineId: made, ClusterId: "red", BootstrapBlob: []byte("join"), ShardId: "s", ShardEpoch: epoch, SequenceNumber: r.token(),
	}))
	if connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("Configure of a FAILED machine: %v", err)
	}
	time.Sleep(time.Second) // some rounds of reconcile and janitor: the Node is there, so they wait for a person
	nodes, err := cp.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "bigfleet.lucy.sh/machine-id=" + made})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].UID != uid {
		t.Errorf("nodes of %s: %v, want the one that was made (%v)", made, nodes.Items, err)
	}
	for _, id := range []string{made, asked} {
		if r.gone(t, id) { // no Node had been made: the janitor was free to end it
			continue
		}
		waitFor(t, "the order to retire "+id, func(ctx context.Context) bool {
			_, err := r.admin.RetireMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id, Force: true, Reason: "test"}))
			if err != nil && connect.CodeOf(err) != connect.CodeAborted && !r.gone(t, id) {
				t.Fatal(err)
			}
			return err == nil || r.gone(t, id) // ABORTED: the janitor looks at it at this moment
		})
	}
	waitFor(t, "an empty cluster and two slots", func(context.Context) bool {
		if node(t, cp, made) != nil || node(t, cp, asked) != nil {
			return false
		}
		slots := 0
		for _, m := range r.list(t, nil).GetMachines() {
			if m.GetState() == speculative && m.GetId() != made && m.GetId() != asked {
				slots++
			}
		}
		return slots == 2
	})
}

// gone says whether the record was removed.
func (r *running) gone(t *testing.T, id string) bool {
	t.Helper()
	_, err := r.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	return err != nil
}
