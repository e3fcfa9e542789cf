package kwokprovider

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"

	"connectrpc.com/connect"
)

// The states, without the prefix of the generated names.
const (
	speculative = bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
	idle        = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	configuring = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING
	configured  = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
	failed      = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
)

// running is a kwok provider in this process.
type running struct {
	bigfleetv1alpha1connect.CapacityProviderClient
	admin bigfleetv1alpha1connect.ProviderAdminClient
	stop  func()
	mu    sync.Mutex
	seq   int64
}

func (r *running) token() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	return r.seq
}

// epoch is the same for all runs of a test; a test that restarts the provider takes sequences over.
const epoch = 1

type options struct {
	state    string // empty: a file that only this test has
	slots    int
	timeouts provider.Timeouts
	more     []provider.Option
}

func start(t *testing.T, o options, clusters nodeready.Clusters) *running {
	t.Helper()
	if o.state == "" {
		o.state = filepath.Join(t.TempDir(), "provider.db")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := kwok.New(kwok.Config{
		Name: "kw", Clusters: clusters, Log: log, OrphanAge: 200 * time.Millisecond,
		Offerings: []provider.Offering{{Name: "small", Count: max(1, o.slots), Attributes: provider.Attributes{
			InstanceType: "t.4x", Zone: "z-1a", CapacityType: provider.Spot, PricePerHour: 0.1, InterruptionProbability: 0.01,
			Resources: map[string]string{"cpu": "4", "memory": "16Gi"}, Labels: map[string]string{"topology.bigfleet/rack": "r1"},
			Taints: []provider.Taint{{Key: "dedicated", Value: "test", Effect: "NoExecute"}},
		}}},
		Options: append([]provider.Option{
			provider.WithStateFile(o.state), provider.WithListener(l), provider.WithTimeouts(o.timeouts),
			provider.WithReconcileInterval(300 * time.Millisecond), provider.WithShutdownGrace(100 * time.Millisecond),
		}, o.more...),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client, url := &http.Client{Transport: transport}, "http://"+l.Addr().String()
	r := &running{
		CapacityProviderClient: bigfleetv1alpha1connect.NewCapacityProviderClient(client, url, connect.WithGRPC()),
		admin:                  bigfleetv1alpha1connect.NewProviderAdminClient(client, url, connect.WithGRPC()),
	}
	r.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("provider: %v", err)
		}
	})
	t.Cleanup(r.stop)
	select {
	case <-p.Ready():
	case err := <-ended:
		t.Fatalf("provider ended: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("provider is not ready")
	}
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

func (r *running) list(t *testing.T, since []byte) *bigfleetv1alpha1.MachineList {
	t.Helper()
	l, err := r.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{SinceRevision: since}))
	if err != nil {
		t.Fatal(err)
	}
	return l.Msg
}

func (r *running) create(t *testing.T, id string) {
	t.Helper()
	if _, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id, ShardId: "s", ShardEpoch: epoch, SequenceNumber: r.token()})); err != nil {
		t.Fatal(err)
	}
	r.settles(t, id, idle, time.Minute)
}

func (r *running) configure(t *testing.T, id, cluster string) {
	t.Helper()
	if _, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
		MachineId: id, ClusterId: cluster, BootstrapBlob: []byte("join"), ShardMetadata: map[string]string{"k": "v"},
		ShardId: "s", ShardEpoch: epoch, SequenceNumber: r.token(),
	})); err != nil {
		t.Fatal(err)
	}
}

func (r *running) drain(t *testing.T, id string, graceSeconds int64) {
	t.Helper()
	if _, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{
		MachineId: id, GracePeriodSeconds: graceSeconds, ShardId: "s", ShardEpoch: epoch, SequenceNumber: r.token(),
	})); err != nil {
		t.Fatal(err)
	}
}

func (r *running) get(t *testing.T, id string) *bigfleetv1alpha1.Machine {
	t.Helper()
	m, err := r.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if err != nil {
		t.Fatal(err)
	}
	return m.Msg
}

func (r *running) settles(t *testing.T, id string, want bigfleetv1alpha1.MachineState, limit time.Duration) *bigfleetv1alpha1.Machine {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		m := r.get(t, id)
		if m.GetState() == want {
			return m
		}
		if m.GetState() == failed || time.Now().After(deadline) {
			t.Fatalf("machine %s is %s (%s), want %s", id, m.GetState(), m.GetLastError(), want)
		}
	}
}

func configs(planes ...*controlplane.ControlPlane) nodeready.RESTConfigs {
	all := nodeready.RESTConfigs{}
	for _, cp := range planes {
		all[cp.Name()] = cp.RESTConfig()
	}
	return all
}

func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}

func id(i int) string { return fmt.Sprintf("kw-small-%d", i) }
