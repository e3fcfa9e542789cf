package provider_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
)

// Scenario 45, PROV-17.5: one empty success of Describe loses nothing. Scenario 46, PROV-17.4, 18.1: one host that is away
// for three rounds is lost, its record ends, the slot returns under a new id, the others are untouched. Scenario 47,
// PROV-17.3: rounds that fail or are cut change nothing.
func TestLosses(t *testing.T) {
	c := newCloud()
	r := startCloud(t, c, fastRounds(provider.WithOfferings(small(20)),
		provider.WithRetention(provider.Retention{Failed: time.Hour, Lost: 20 * time.Millisecond, Stockout: time.Hour, Orphan: time.Hour}))...)
	for i := range 10 {
		r.mustCreate(t, id(i))
	}
	away := func(refs func(string) bool, fail error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.away, c.failDescribe = refs, fail
	}
	rounds := func(n int64) {
		t.Helper()
		begin := c.rounds.Load()
		eventually(t, "rounds of Describe", func() bool { return c.rounds.Load() >= begin+n })
	}
	before := r.list(t, nil).GetRevision()
	away(nil, errors.New("the API is away"))
	rounds(10)
	away(func(string) bool { return true }, nil) // an empty success, again and again
	rounds(10)
	if delta := r.list(t, before); len(delta.GetMachines()) != 0 || len(delta.GetRemovedIds()) != 0 {
		t.Fatalf("an empty or failed description changed %d machines", len(delta.GetMachines()))
	}
	away(nil, nil)
	rounds(5)
	away(func(ref string) bool { return strings.HasPrefix(ref, "cloud://"+id(3)+"/") }, nil)
	eventually(t, "the tombstone", func() bool { return len(r.list(t, before).GetRemovedIds()) == 1 })
	delta := r.list(t, before)
	if gone := delta.GetRemovedIds(); gone[0] != id(3) || len(delta.GetMachines()) != 1 || delta.GetMachines()[0].GetState() != stSpeculative || delta.GetMachines()[0].GetId() == id(3) {
		t.Errorf("removed %v, changed %v", gone, delta.GetMachines())
	}
}

// Scenario 46a, PROV-17.4, 17.5: hosts that the substrate itself calls gone, one by one, and that a round does not see, are lost
// however many they are: a storm of interruptions is no broken answer. What is called gone and seen stays.
func TestHostsCalledGoneAreNotHeld(t *testing.T) {
	c := &notifyingCloud{cloud: newCloud(), say: make(chan provider.Notice, 10)}
	r := startCloud(t, c, fastRounds(provider.WithOfferings(small(20)), provider.WithLossRounds(1_000_000))...)
	for i := range 8 {
		r.mustCreate(t, id(i))
	}
	c.mu.Lock()
	c.away = func(ref string) bool { return !strings.HasPrefix(ref, "cloud://"+id(0)+"/") }
	c.mu.Unlock()
	for i := range 8 {
		c.say <- provider.Notice{MachineID: id(i), Gone: true}
	}
	for i := 1; i < 8; i++ {
		if m := r.settles(t, id(i), stFailed); m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST {
			t.Errorf("%v", m)
		}
	}
	r.settles(t, id(0), stIdle)
}

// notifyingCloud tells what becomes of its hosts.
type notifyingCloud struct {
	*cloud
	say chan provider.Notice
}

func (c *notifyingCloud) Notify(ctx context.Context, notify func(provider.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-c.say:
			notify(n)
		}
	}
}

// Scenario 48, PROV-17.7, 17.8: a lost store. The next start names the hosts and is not ready; with --adopt-store a bound one
// is CONFIGURED again with its cluster and metadata, never IDLE.
func TestStoreLost(t *testing.T) {
	c := &bindingCloud{cloud: newCloud(), bindings: map[string]provider.Binding{}}
	r := startCloud(t, c, provider.WithStateFile(filepath.Join(t.TempDir(), "p.db")))
	r.mustCreate(t, id(0))
	r.must(t, provider.Configure, id(0), stConfigured)
	r.mustCreate(t, id(1))
	described, err := r.admin.GetProvider(t.Context(), connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	lost := described.Msg.GetStoreId()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "new.db")
	var said lockedBuffer
	p, err := provider.New("cloud", c, provider.WithStateFile(fresh), provider.WithReadiness(provider.NoReadiness()), provider.WithOfferings(small(4)),
		provider.WithAddr("127.0.0.1:0"), provider.WithLogger(slog.New(slog.NewTextHandler(&said, nil))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	eventually(t, "hosts and store in the log", func() bool {
		return strings.Contains(said.String(), "--adopt-store "+lost) && strings.Contains(said.String(), "cloud://"+id(1))
	})
	select {
	case <-p.Ready():
		t.Error("ready over the hosts of another store")
	default:
	}
	// PROV-10.5, 20.7: every caller gets the same answer.
	if why := p.Serving(); why == nil || !strings.Contains(why.Error(), "--adopt-store "+lost) {
		t.Errorf("readiness says: %v", why)
	}
	asked := bigfleetv1alpha1connect.NewCapacityProviderClient(http.DefaultClient, "http://"+p.Addr())
	if _, err := asked.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{})); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "--adopt-store") {
		t.Errorf("List says: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	again := startCloud(t, c, provider.WithStateFile(fresh), provider.WithAdoptStore(lost))
	states := map[bigfleetv1alpha1.MachineState]*bigfleetv1alpha1.Machine{}
	for _, m := range again.list(t, nil).GetMachines() {
		if m.GetHost() != nil {
			states[m.GetState()] = m
		}
	}
	if m := states[stConfigured]; m.GetCluster() != "red" || m.GetShardMetadata()["k"] != "v" || states[stIdle] == nil || len(states) != 2 {
		t.Errorf("adopted: %v", states)
	}
}

// bindingCloud keeps bindings on its hosts, as tags.
type bindingCloud struct {
	*cloud
	bindings map[string]provider.Binding // by reference
}

func (c *bindingCloud) Bind(_ context.Context, m provider.Machine, b provider.Binding) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bindings[m.HostRef] = b
	return nil
}

func (c *bindingCloud) Unbind(_ context.Context, m provider.Machine) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bindings, m.HostRef)
	return nil
}

func (c *bindingCloud) Describe(ctx context.Context, found func(provider.Host) error) error {
	return c.cloud.Describe(ctx, func(h provider.Host) error {
		if b, ok := c.bindings[h.Ref]; ok { // Describe holds the lock
			h.Binding = &b
		}
		a := small(1).Attributes
		h.Attributes = &a
		return found(h)
	})
}

// failsInDrain leads the first machine to FAILED in Drain.
func failsInDrain(t *testing.T, c *cloud, r *running, why string) {
	t.Helper()
	r.mustCreate(t, id(0))
	r.must(t, provider.Configure, id(0), stConfigured)
	c.mu.Lock()
	c.hook = func(_ context.Context, k provider.Kind, _ provider.Machine) error {
		if k == provider.Drain {
			return errors.New(why)
		}
		return nil
	}
	c.mu.Unlock()
	r.must(t, provider.Drain, id(0), stFailed)
}

// Scenario 49, PROV-18.4, 11.12: a machine that FAILED in Drain keeps its binding for as long as it takes, until an
// operator retires it by force.
func TestAFailedDrainWaitsForAnOperator(t *testing.T) {
	c := newCloud()
	r := startCloud(t, c, fastRounds(provider.WithRetention(provider.Retention{
		Failed: 10 * time.Millisecond, Lost: 10 * time.Millisecond, Stockout: 10 * time.Millisecond, Orphan: 10 * time.Millisecond,
	}))...)
	failsInDrain(t, c, r, "a volume does not detach")
	time.Sleep(300 * time.Millisecond) // thirty times its retention
	m := r.settles(t, id(0), stFailed)
	if m.GetCluster() != "red" || m.GetShardMetadata()["k"] != "v" || !strings.HasPrefix(m.GetLastError(), "drain: ") {
		t.Errorf("%v", m)
	}
	retire := func(force bool) (*connect.Response[bigfleetv1alpha1.RetireMachineResponse], error) {
		return r.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id(0), Force: force, Reason: "test"}))
	}
	if _, err := retire(false); err == nil {
		t.Error("a bound machine was retired without force")
	}
	answer, err := retire(true)
	if err != nil {
		t.Fatal(err)
	}
	r.settles(t, answer.Msg.GetReplacementId(), stSpeculative)
}

// PROV-11.8, 18.2: the host of a machine that FAILED in Drain is gone. The machine's failure becomes HOST_LOST, and its slot comes back without an
// operator: nothing can run there, and nobody pays for it.
func TestAFailedDrainOfALostHostEnds(t *testing.T) {
	c := newCloud()
	r := startCloud(t, c, fastRounds(provider.WithRetention(provider.Retention{
		Failed: time.Hour, Lost: 20 * time.Millisecond, Stockout: time.Hour, Orphan: time.Hour,
	}))...)
	before := r.list(t, nil).GetRevision()
	failsInDrain(t, c, r, "the host is gone")
	c.mu.Lock()
	c.away = func(ref string) bool { return strings.HasPrefix(ref, "cloud://"+id(0)+"/") }
	c.mu.Unlock()
	eventually(t, "the tombstone", func() bool { return len(r.list(t, before).GetRemovedIds()) == 1 })
	for _, m := range r.list(t, before).GetMachines() {
		if m.GetState() != stSpeculative {
			t.Errorf("%v is left", m)
		}
	}
}

// Scenario 39, PROV-11.11, 18.3: of ten Creates three find stock. Seven slots are FAILED for CAPACITY and come back under new
// ids after the pause, although others meet a stock-out meanwhile; nothing is launched twice.
func TestStockedOutSlotsComeBack(t *testing.T) {
	c := newCloud()
	var stock atomic.Int64
	stock.Store(3)
	c.hook = func(_ context.Context, k provider.Kind, _ provider.Machine) error {
		if k == provider.Create && stock.Add(-1) < 0 {
			return provider.OutOfCapacity(errors.New("nothing left"))
		}
		return nil
	}
	r := startCloud(t, c, fastRounds(provider.WithOfferings(small(40)),
		provider.WithRetention(provider.Retention{Failed: time.Hour, Lost: time.Hour, Stockout: time.Second, Orphan: time.Hour}))...)
	before := r.list(t, nil).GetRevision()
	next := 0
	ask := func() {
		if _, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(next), ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})); err != nil {
			t.Fatal(err)
		}
		next++
	}
	for range 10 {
		ask()
	}
	eventually(t, "seven new slots", func() bool {
		if next < 30 { // others continue failing, as under a shard that continues asking
			ask()
		}
		idle, back := 0, 0
		delta := r.list(t, before)
		for _, m := range delta.GetMachines() {
			switch {
			case m.GetState() == stIdle:
				idle++
			case m.GetState() == stFailed && (m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY || m.GetHost() != nil):
				t.Fatalf("%v", m)
			}
		}
		for i := range 10 {
			if slices.Contains(delta.GetRemovedIds(), id(i)) {
				back++
			}
		}
		return idle == 3 && back == 7
	})
	if n := len(r.list(t, nil).GetMachines()); n != 40 || c.made.Load() != 3 {
		t.Errorf("%d machines, want 40; %d hosts, want 3", n, c.made.Load())
	}
}

// Scenario 35, PROV-11.3, 18.5: a host that comes after the limit belongs to no machine: the machine stays FAILED, and the
// host is torn down.
func TestALateHostIsTornDown(t *testing.T) {
	c := newCloud()
	late := make(chan struct{})
	c.hook = func(ctx context.Context, k provider.Kind, _ provider.Machine) error {
		if k == provider.Create {
			<-late // it does not look at its context, as some client libraries do not
		}
		return nil
	}
	r := startCloud(t, c, fastRounds(provider.WithTimeouts(provider.Timeouts{Create: 50 * time.Millisecond}),
		provider.WithRetention(provider.Retention{Failed: 400 * time.Millisecond, Lost: time.Hour, Stockout: time.Hour, Orphan: 50 * time.Millisecond}))...)
	r.must(t, provider.Create, id(0), stFailed)
	close(late)
	hosts := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.hosts)
	}
	eventually(t, "the late host to come and go", func() bool { return c.made.Load() == 1 && hosts() == 0 })
	for _, m := range r.list(t, nil).GetMachines() {
		if m.GetHost() != nil || m.GetId() == id(0) && m.GetState() != stFailed {
			t.Errorf("%v", m)
		}
	}
}
