package operator

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

// replica is the operator's program as a process of its own.
type replica struct {
	*proc.Process
	metrics string // address
}

// metric reads a metric of a replica.
func (r replica) metric(w *world, name string, labels ...string) float64 {
	w.Helper()
	v, err := fixture.Metric(w.Context(), r.metrics, "bigfleet_operator_"+name, labels...)
	w.must(err)
	return v
}

// replica starts the operator's program as the chart would, with leader election unless a flag turns it off.
func (w *world) replica(s *shard, name string, more ...string) replica {
	w.Helper()
	port, err := loopback.Reserve()
	w.must(err)
	w.Cleanup(port.Release)
	kubeconfig, err := w.cp.UserKubeconfig("system:serviceaccount:"+namespace+":bigfleet-operator", "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	w.must(err)
	p, err := proc.Start(w.Context(), proc.Config{
		Name: name, Path: proc.BuildT(w, "services/operator/cmd/bigfleet-operator"), LogFile: filepath.Join(w.TempDir(), name+".log"),
		Args: append([]string{"--cluster-id", clusterID, "--shard-addr", s.addr, "--kubeconfig", kubeconfig, "--namespace", namespace,
			"--bootstrap-renderer", "stub", "--metrics-addr", port.Addr()}, more...),
		Ready: proc.HTTP("http://"+port.Addr()+"/readyz", nil),
	})
	w.must(err)
	w.Cleanup(func() {
		if p.Running() {
			p.Kill()
		}
	})
	return replica{p, port.Addr()}
}

func (s *shard) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// Scenario 8, OP-1.2, OP-3.3, OP-3.5: two replicas of one cluster, both ready, one session. The holder is killed in the middle of a
// replay of node states; the other takes over, and nothing is pruned by half a replay. Then it is stopped properly.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	first := w.replica(s, "first")
	s.until(t, "a session", func(f []frame) bool { return lastRollup(f) != nil })
	second := w.replica(s, "second") // ready, although it does not hold the Lease
	w.until("it says what it waits for", func() bool { return strings.Contains(second.Tail(50), "waiting for the leader election Lease") })
	for _, r := range []replica{first, second} {
		listens, err := r.Listening()
		w.must(err)
		if len(listens) != 1 || listens[0] != r.metrics {
			t.Errorf("%s listens on %v; want its port for metrics %s alone", r.Name(), listens, r.metrics)
		}
	}
	for _, id := range []string{"r1", "r2"} {
		s.send(t, node(id, pb.MachineState_MACHINE_STATE_CONFIGURED))
	}
	w.until("both machines are shown", func() bool { return w.phase("r1") == v1alpha1.NodeReady && w.phase("r2") == v1alpha1.NodeReady })
	w.never(3*time.Second, "a second session", func() bool { return s.opened() != 1 })

	start := time.Now()
	first.Kill()
	s.within(t, time.Minute, "the other replica's session", func([]frame) bool { return s.sessions == 2 })
	t.Logf("a killed holder was replaced after %v", time.Since(start))
	s.send(t, node("r1", pb.MachineState_MACHINE_STATE_CONFIGURED)) // half a replay
	third := w.replica(s, "third")
	start = time.Now()
	w.must(second.Stop())
	s.within(t, time.Minute, "the third replica's session", func([]frame) bool { return s.sessions == 3 })
	t.Logf("a holder that stopped was replaced after %v", time.Since(start))
	if w.upcoming("r2") == nil {
		t.Error("half a replay pruned a machine")
	}
	s.send(t, node("r1", pb.MachineState_MACHINE_STATE_CONFIGURED))
	s.send(t, resynced())
	w.until("a whole replay prunes", func() bool { return w.upcoming("r2") == nil && w.upcoming("r1") != nil })

	var leases coordinationv1.LeaseList
	w.must(w.client.List(t.Context(), &leases, client.InNamespace(namespace)))
	if len(leases.Items) != 1 || leases.Items[0].Name != operator.LeaseName(clusterID) {
		t.Errorf("leases %v", leases.Items)
	}
	w.must(third.Stop())
	w.must(w.client.List(t.Context(), &leases, client.InNamespace(namespace)))
	if holder := leases.Items[0].Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the Lease of a stopped holder names %q", *holder)
	}
}

// Scenario 7, OP-3.7: a server that is not a shard hears nothing, not even who calls. And one whose certificate is a shard's
// gets the session.
func testWrongServer(t *testing.T, w *world) {
	dir := t.TempDir()
	ca, err := devca.New("test")
	w.must(err)
	files := func(name string, id identity.ID) identity.Files {
		f, err := ca.Write(dir, name, devca.For(id))
		w.must(err)
		return f
	}
	secure := func(name string, id identity.ID) *shard {
		source, err := identity.Load(files(name, id), identity.Options{})
		w.must(err)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		w.must(err)
		s := &shard{features: allFeatures, changed: make(chan struct{}), addr: ln.Addr().String()}
		mux := http.NewServeMux()
		mux.Handle(bigfleetv1alpha1connect.NewShardHandler(s))
		config := source.ServerConfig()
		config.NextProtos = []string{"h2"}
		s.server = &http.Server{Handler: mux}
		go func() { _ = s.server.Serve(tls.NewListener(ln, config)) }()
		t.Cleanup(s.stop)
		return s
	}
	own := files("red", identity.ID{Kind: identity.Cluster, Name: clusterID})
	wrong := secure("coordinator", identity.ID{Kind: identity.Coordinator, Name: "coordinator-0"})
	right := secure("shard", identity.ID{Kind: identity.Shard, Name: "shard-0"})

	op := w.operator(wrong, func(c *operator.Config) { c.TLS = own })
	w.until("the status says why there is no session", func() bool {
		m, _ := get(w, namespace, "bigfleet-operator-status", &corev1.ConfigMap{})
		text := m.Data["status.json"]
		return strings.Contains(text, "bigfleet://coordinator/coordinator-0") && strings.Contains(text, `"connected": false`)
	})
	if n := wrong.count(); n != 0 {
		t.Errorf("%d frames were sent to a server that is no shard", n)
	}
	w.must(op.end())

	w.operator(right, func(c *operator.Config) { c.TLS, c.NoLeaderElection = own, false })
	right.until(t, "the session with a shard", func(f []frame) bool {
		return slices.ContainsFunc(f, func(f frame) bool { h := f.m.GetHello(); return h != nil && h.ClusterId == clusterID })
	})

	// The operator refuses to start with somebody else's certificate.
	other := files("blue", identity.ID{Kind: identity.Cluster, Name: "blue"})
	op = w.operator(right, func(c *operator.Config) { c.TLS = other })
	select {
	case err := <-op.done:
		if err == nil || !strings.Contains(err.Error(), "bigfleet://cluster/red") {
			t.Errorf("with the certificate of another cluster it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("an operator with the certificate of another cluster runs")
	}
	op.ended = true
}

// Scenario 3, OP-4.7, OP-5.2: the shard's stream is stalled while 300 requests come; when it reads again the newest demand is there,
// and what came between was not queued.
func testStalledStream(t *testing.T, w *world) {
	s := startShard(t, allFeatures...)
	ctx, release := context.WithCancel(t.Context())
	defer release()
	s.mu.Lock()
	s.stall = ctx
	s.mu.Unlock()
	w.operator(s)
	s.until(t, "a session", func([]frame) bool { return s.sessions == 1 })
	w.many(300)
	time.Sleep(3 * time.Second) // what would be three roll-ups
	release()
	s.needs(t, "the whole demand", func(n []*pb.CapacityNeed) bool { return len(n) == 1 && n[0].AggregateResources["cpu"] == "30" })
	w.until("all are acknowledged", func() bool { return w.metric(t, "acknowledged_total", "") == 300 })
}
