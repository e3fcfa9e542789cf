package provider_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cloud is a substrate in a map: what a backend needs at least, with a hook in front of each call.
type cloud struct {
	mu    sync.Mutex
	hosts map[string]provider.Host // by ref
	calls map[string]int           // by "kind/operation id"
	hook  func(ctx context.Context, kind provider.Kind, m provider.Machine) error

	away         func(ref string) bool // hosts that Describe leaves out
	failDescribe error
	rounds, made atomic.Int64
}

func newCloud() *cloud { return &cloud{hosts: map[string]provider.Host{}, calls: map[string]int{}} }

func (c *cloud) on(ctx context.Context, k provider.Kind, id string, m provider.Machine) error {
	c.mu.Lock()
	c.calls[k.Label()+"/"+id]++
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return ctx.Err()
	}
	return hook(ctx, k, m)
}

func (c *cloud) Describe(_ context.Context, found func(provider.Host) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rounds.Add(1)
	if c.failDescribe != nil {
		return c.failDescribe
	}
	for _, h := range c.hosts {
		if c.away != nil && c.away(h.Ref) {
			continue
		}
		if err := found(h); err != nil {
			return err
		}
	}
	return nil
}

func (c *cloud) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	if err := c.on(ctx, provider.Create, op.ID, op.Machine); err != nil {
		return provider.Host{}, err
	}
	h := provider.Host{Ref: "cloud://" + op.Machine.ID + "/" + op.ID, MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[h.Ref] = h
	c.made.Add(1)
	return h, nil
}

func (c *cloud) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return c.on(ctx, provider.Configure, op.ID, op.Machine)
}

func (c *cloud) Drain(ctx context.Context, op provider.DrainOp) error {
	return c.on(ctx, provider.Drain, op.ID, op.Machine)
}

func (c *cloud) Delete(ctx context.Context, op provider.DeleteOp) error {
	if err := c.on(ctx, provider.Delete, op.ID, op.Machine); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref, h := range c.hosts {
		if ref == op.Machine.HostRef || op.Machine.HostRef == "" && h.MachineID == op.Machine.ID {
			delete(c.hosts, ref)
		}
	}
	return nil
}

func small(count int) provider.Offering {
	return provider.Offering{Name: "small", Count: count, Attributes: provider.Attributes{
		InstanceType: "c1.small", Zone: "here-a", CapacityType: provider.OnDemand, PricePerHour: 0.1,
		Resources: map[string]string{"cpu": "2", "memory": "4Gi"}, Labels: map[string]string{"rack": "r1"},
	}}
}

// running is a provider in this process, served over loopback.
type running struct {
	*provider.Provider
	bigfleetv1alpha1connect.CapacityProviderClient
	admin bigfleetv1alpha1connect.ProviderAdminClient
	addr  string
	stop  func() error
	seq   int64
}

func startCloud(t testing.TB, b provider.Backend, options ...provider.Option) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startCloudAt(t, l, b, options...)
}

func startCloudAt(t testing.TB, l net.Listener, b provider.Backend, options ...provider.Option) *running {
	t.Helper()
	options = append([]provider.Option{
		provider.WithStore(store.Memory()), provider.WithReadiness(provider.NoReadiness()), provider.WithListener(l),
		provider.WithLogger(slog.New(slog.DiscardHandler)), provider.WithOfferings(small(4)),
	}, options...)
	p, err := provider.New("cloud", b, options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport}
	url := "http://" + l.Addr().String()
	r := &running{
		Provider: p, CapacityProviderClient: bigfleetv1alpha1connect.NewCapacityProviderClient(client, url, connect.WithGRPC()),
		admin: bigfleetv1alpha1connect.NewProviderAdminClient(client, url, connect.WithGRPC()), addr: l.Addr().String(),
	}
	r.stop = sync.OnceValue(func() error {
		transport.CloseIdleConnections()
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-p.Ready():
	case err := <-ended:
		t.Fatalf("Run ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("not ready")
	}
	return r
}

func (r *running) token() int64 { r.seq++; return r.seq }

func (r *running) mustCreate(t testing.TB, id string) {
	t.Helper()
	if _, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})); err != nil {
		t.Fatal(err)
	}
	r.settles(t, id, bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
}

func (r *running) settles(t testing.TB, id string, want bigfleetv1alpha1.MachineState) *bigfleetv1alpha1.Machine {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		m, err := r.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
		if err != nil {
			t.Fatal(err)
		}
		if m.Msg.GetState() == want {
			return m.Msg
		}
		if time.Now().After(deadline) {
			t.Fatalf("machine %s is %s (%s), want %s", id, m.Msg.GetState(), m.Msg.GetLastError(), want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// PROV-3: one full cycle, each state as its row of the table says, and back.
func TestCycle(t *testing.T) {
	r := startCloud(t, newCloud(), provider.WithStateFile(filepath.Join(t.TempDir(), "p.db")))
	list, err := r.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.Msg.GetMachines()); n != 4 || !list.Msg.GetComplete() {
		t.Fatalf("%d machines, complete %v", n, list.Msg.GetComplete())
	}
	id := "cloud-small-0"
	r.mustCreate(t, id)
	for round := range 3 {
		ack, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: id, ClusterId: "red", BootstrapBlob: []byte("secret"), ShardMetadata: map[string]string{"a\x00b": "", "round": fmt.Sprint(round)},
			ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token(),
		}))
		if err != nil {
			t.Fatal(err)
		}
		if m := ack.Msg.GetMachine(); m.GetState() != bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING || m.GetCluster() != "red" || len(m.GetShardMetadata()) != 2 {
			t.Fatalf("ack %v", m)
		}
		r.settles(t, id, bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED)
		if _, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})); err != nil {
			t.Fatal(err)
		}
		m := r.settles(t, id, bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE)
		if m.GetCluster() != "" || len(m.GetShardMetadata()) != 0 || m.GetHost().GetRef() == "" {
			t.Fatalf("idle %v", m)
		}
	}
	if _, err := r.Delete(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})); err != nil {
		t.Fatal(err)
	}
	if m := r.settles(t, id, bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE); m.GetHost() != nil {
		t.Fatalf("slot %v", m)
	}
	delta, err := r.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{SinceRevision: list.Msg.GetRevision()}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(delta.Msg.GetMachines()); n != 1 || delta.Msg.GetComplete() {
		t.Fatalf("delta has %d machines, complete %v", n, delta.Msg.GetComplete())
	}
}
