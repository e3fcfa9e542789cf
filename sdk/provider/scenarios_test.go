package provider_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"connectrpc.com/connect"
)

const (
	stSpeculative = bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
	stIdle        = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	stConfigured  = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
	stFailed      = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
)

func (r *running) list(t testing.TB, since []byte) *bigfleetv1alpha1.MachineList {
	t.Helper()
	l, err := r.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{SinceRevision: since}))
	if err != nil {
		t.Fatal(err)
	}
	return l.Msg
}

func (r *running) code(t testing.TB, k provider.Kind, id string) connect.Code {
	t.Helper()
	var err error
	switch k {
	case provider.Create:
		_, err = r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()}))
	case provider.Configure:
		_, err = r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: id, ClusterId: "red", BootstrapBlob: []byte("x"), ShardMetadata: map[string]string{"k": "v"}, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token(),
		}))
	case provider.Drain:
		_, err = r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()}))
	case provider.Delete:
		_, err = r.Delete(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()}))
	}
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func (r *running) must(t testing.TB, k provider.Kind, id string, want bigfleetv1alpha1.MachineState) *bigfleetv1alpha1.Machine {
	t.Helper()
	if code := r.code(t, k, id); code != 0 {
		t.Fatalf("%s of %s: %s", k, id, code)
	}
	return r.settles(t, id, want)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func id(i int) string { return fmt.Sprintf("cloud-small-%d", i) }

// fastRounds makes losses come soon and keeps FAILED machines.
func fastRounds(more ...provider.Option) []provider.Option {
	return append([]provider.Option{
		provider.WithReconcileInterval(20 * time.Millisecond),
		provider.WithRetention(provider.Retention{Failed: time.Hour, Lost: time.Hour, Stockout: time.Hour, Orphan: 50 * time.Millisecond}),
	}, more...)
}

// Scenario 32, PROV-15.9, 10.16, 10.17: an offering that shrinks by five leaves five ids in removed_ids; bound machines stay.
func TestOfferingReduced(t *testing.T) {
	r := startCloud(t, newCloud(), provider.WithOfferings(small(10)))
	r.mustCreate(t, id(9))
	r.must(t, provider.Configure, id(9), stConfigured)
	since := r.list(t, nil).GetRevision()
	if err := r.SetOfferings(small(5)); err != nil {
		t.Fatal(err)
	}
	delta := r.list(t, since)
	if len(delta.GetRemovedIds()) != 4 { // 5 to 8; 9 is bound and goes when it comes back
		t.Errorf("removed %v", delta.GetRemovedIds())
	}
	for _, gone := range delta.GetRemovedIds() {
		if _, err := r.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: gone})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", gone, err)
		}
	}
	r.must(t, provider.Drain, id(9), stIdle)
	if code := r.code(t, provider.Delete, id(9)); code != 0 {
		t.Fatal(code)
	}
	eventually(t, "the fifth to go with its return", func() bool { return len(r.list(t, since).GetRemovedIds()) == 5 })
}

// Scenario 33, PROV-9.13, 10.12: a shard that ignores the extension fields sees every removal with its next full list, and
// with deltas everything else.
func TestAShardWithoutExtensions(t *testing.T) {
	r := startCloud(t, newCloud(), provider.WithOfferings(small(6)))
	since := r.list(t, nil).GetRevision()
	r.mustCreate(t, id(0))
	if delta := r.list(t, since).GetMachines(); len(delta) != 1 || delta[0].GetId() != id(0) {
		t.Errorf("delta %v", delta)
	}
	if err := r.SetOfferings(small(3)); err != nil {
		t.Fatal(err)
	}
	if full := r.list(t, nil); len(full.GetMachines()) != 3 || len(full.GetRemovedIds()) != 0 {
		t.Errorf("the full list has %d machines and %d removals", len(full.GetMachines()), len(full.GetRemovedIds()))
	}
}

// Scenario 43, PROV-12.6: with recovery resume, a Create that was cut off continues with the same operation id: one host.
func TestResume(t *testing.T) {
	state, c := filepath.Join(t.TempDir(), "p.db"), newCloud()
	c.hook = func(ctx context.Context, _ provider.Kind, _ provider.Machine) error { <-ctx.Done(); return ctx.Err() }
	r := startCloud(t, c, provider.WithStateFile(state), provider.WithShutdownGrace(time.Millisecond))
	ack, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(0), ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()}))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.hook = nil
	c.mu.Unlock()
	again := startCloud(t, c, provider.WithStateFile(state), provider.WithResume(true))
	again.seq = r.seq
	again.settles(t, id(0), stIdle)
	repeat, err := again.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(0), ShardId: "s", ShardEpoch: 1, SequenceNumber: again.token()}))
	if err != nil || repeat.Msg.GetOperationId() != ack.Msg.GetOperationId() {
		t.Errorf("the operation id is %q, was %q (%v)", repeat.Msg.GetOperationId(), ack.Msg.GetOperationId(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hosts) != 1 {
		t.Errorf("%d hosts", len(c.hosts))
	}
}

// full is a store whose commits fail while is is set.
type full struct {
	store.Store
	is  atomic.Bool
	err error
}

func (f *full) Commit(batch []store.Write) error {
	if f.is.Load() {
		return f.err
	}
	return f.Store.Commit(batch)
}

// Scenario 44, PROV-12.7: a disk that fails at commit gives UNAVAILABLE and shows nothing; readiness is false, reads go
// on, nothing is written again, and a restart works.
func TestDiskFails(t *testing.T) {
	state := filepath.Join(t.TempDir(), "p.db")
	file, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	disk := &full{Store: file, err: errors.New("input/output error")}
	r := startCloud(t, newCloud(), provider.WithStore(disk))
	disk.is.Store(true)
	if code := r.code(t, provider.Create, id(0)); code != connect.CodeUnavailable {
		t.Errorf("Create: %s", code)
	}
	disk.is.Store(false) // the content of the disk is unknown: it is not written again all the same
	if code := r.code(t, provider.Create, id(1)); code != connect.CodeUnavailable {
		t.Errorf("Create after the failure: %s", code)
	}
	if m := r.settles(t, id(0), stSpeculative); m.GetHost() != nil {
		t.Errorf("%v", m)
	}
	if r.Serving() == nil {
		t.Error("a provider that cannot store says it is ready")
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	again := startCloud(t, newCloud(), provider.WithStateFile(state))
	again.mustCreate(t, id(0))
}

// Scenario 44, PROV-12.7: a provider whose disk is full refuses mutations and heals by itself once there is room; a transition that ended
// meanwhile settles then.
func TestDiskFullHeals(t *testing.T) {
	file, err := store.Open(filepath.Join(t.TempDir(), "p.db"))
	if err != nil {
		t.Fatal(err)
	}
	disk := &full{Store: file, err: fmt.Errorf("no space left on device: %w", store.ErrFull)}
	c := newCloud()
	begun, end := make(chan struct{}), make(chan struct{})
	c.hook = func(_ context.Context, k provider.Kind, _ provider.Machine) error {
		if k == provider.Create {
			close(begun)
			<-end
		}
		return nil
	}
	r := startCloud(t, c, provider.WithStore(disk))
	if code := r.code(t, provider.Create, id(0)); code != 0 {
		t.Fatal(code)
	}
	<-begun
	disk.is.Store(true)
	if code := r.code(t, provider.Create, id(1)); code != connect.CodeUnavailable {
		t.Errorf("Create with a full disk: %s", code)
	}
	if r.Serving() == nil {
		t.Error("a provider that cannot store says it is ready")
	}
	close(end)
	disk.is.Store(false)
	eventually(t, "the provider to heal", func() bool { return r.Serving() == nil })
	r.settles(t, id(0), stIdle)
	c.mu.Lock()
	c.hook = nil
	c.mu.Unlock()
	r.mustCreate(t, id(1))
}

// Scenario 53, PROV-19.1, 19.2: a substrate that throttles: all Creates settle, and the rate of calls stays under the limit.
func TestThrottledSubstrate(t *testing.T) {
	const machines, perSecond = 60, 200.0
	c := newCloud()
	var calls atomic.Int64
	c.hook = func(ctx context.Context, k provider.Kind, _ provider.Machine) error {
		return provider.Call(ctx, "cloud.Launch", func(context.Context) error {
			if calls.Add(1)%3 == 0 {
				return provider.RetryAfter(time.Millisecond, errors.New("slow down"))
			}
			return nil
		})
	}
	r := startCloud(t, c, provider.WithOfferings(small(machines)), provider.WithCallLimits(map[string]provider.CallLimit{"cloud.Launch": {PerSecond: perSecond, Burst: 1}}))
	begin := time.Now()
	for i := range machines {
		if code := r.code(t, provider.Create, id(i)); code != 0 {
			t.Fatal(code)
		}
	}
	for i := range machines {
		r.settles(t, id(i), stIdle)
	}
	if rate := float64(calls.Load()-1) / time.Since(begin).Seconds(); rate > perSecond*1.05 {
		t.Errorf("%.0f calls a second, the limit is %.0f", rate, perSecond)
	}
	if calls.Load() < machines*5/4 {
		t.Errorf("%d calls for %d machines: nothing was repeated", calls.Load(), machines)
	}
}

// Scenario 54, PROV-19.4, 5.6: with the queue full, a Create is RESOURCE_EXHAUSTED and its slot unchanged; a repeat of an
// accepted one answers OK.
func TestQueueFull(t *testing.T) {
	c := newCloud()
	release := make(chan struct{})
	c.hook = func(ctx context.Context, _ provider.Kind, _ provider.Machine) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	r := startCloud(t, c, provider.WithOfferings(small(8)), provider.WithTransitionLimits(4, 1), provider.WithShutdownGrace(time.Millisecond))
	accepted, refused := 0, ""
	for i := range 8 {
		switch code := r.code(t, provider.Create, id(i)); code {
		case 0:
			accepted++
		case connect.CodeResourceExhausted:
			refused = id(i)
		default:
			t.Fatal(code)
		}
	}
	if refused == "" || accepted < 4 {
		t.Fatalf("%d accepted, refused %q", accepted, refused)
	}
	r.settles(t, refused, stSpeculative)
	if code := r.code(t, provider.Create, id(0)); code != 0 {
		t.Errorf("a repeat of an accepted Create: %s", code)
	}
	close(release)
	r.settles(t, id(0), stIdle)
}

// Scenario 55, PROV-19.5: a stop with work running ends within the grace; TestMain sees that no goroutine is left. The work
// that was cut off is FAILED as INTERRUPTED at the next start (PROV-12.5).
func TestStopWithRunningWork(t *testing.T) {
	state, c := filepath.Join(t.TempDir(), "p.db"), newCloud()
	c.hook = func(ctx context.Context, _ provider.Kind, _ provider.Machine) error { <-ctx.Done(); return ctx.Err() }
	r := startCloud(t, c, provider.WithStateFile(state), provider.WithShutdownGrace(50*time.Millisecond))
	if code := r.code(t, provider.Create, id(0)); code != 0 {
		t.Fatal(code)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	again := startCloud(t, newCloud(), provider.WithStateFile(state))
	if m := again.settles(t, id(0), stFailed); m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED {
		t.Errorf("%v", m)
	}
}

// pricedCloud quotes one price, or fails.
type pricedCloud struct {
	*cloud
	price atomic.Int64 // thousandths of a dollar; 0: the source is dead
}

func (c *pricedCloud) Prices(_ context.Context, quote func(provider.Quote) error) error {
	if c.price.Load() == 0 {
		return errors.New("the price list is away")
	}
	return quote(provider.Quote{Offering: "small", PricePerHour: float64(c.price.Load()) / 1000, Source: "live"})
}

// Scenario 56, PROV-9.5, 10.9: a doubled price changes each record and the revision once, an equal refresh nothing. Scenario
// 57, PROV-28.5: slots without a price for too long are withdrawn with tombstones, hosts stay and can be given back, and the
// same slot ids come again with the price.
func TestPrices(t *testing.T) {
	c := &pricedCloud{cloud: newCloud()}
	c.price.Store(100)
	r := startCloud(t, c, provider.WithPrices(10*time.Millisecond, 300*time.Millisecond))
	r.mustCreate(t, id(0))
	since := r.list(t, nil).GetRevision()
	c.price.Store(200)
	eventually(t, "the doubled price", func() bool { return len(r.list(t, since).GetMachines()) == 4 })
	for _, m := range r.list(t, since).GetMachines() {
		if m.GetPricePerHour() != 0.2 {
			t.Errorf("%v", m)
		}
	}
	since = r.list(t, nil).GetRevision()
	time.Sleep(100 * time.Millisecond) // ten equal refreshes
	if n := len(r.list(t, since).GetMachines()); n != 0 {
		t.Errorf("an equal price changed %d records", n)
	}
	c.price.Store(0)
	eventually(t, "the slots to be withdrawn", func() bool { return len(r.list(t, since).GetRemovedIds()) == 3 })
	r.settles(t, id(0), stIdle)
	if code := r.code(t, provider.Delete, id(0)); code != 0 {
		t.Errorf("Delete of a machine whose price is too old: %s", code)
	}
	c.price.Store(200)
	eventually(t, "the slots to return", func() bool {
		n := 0
		for _, m := range r.list(t, nil).GetMachines() {
			for i := range 4 {
				if m.GetId() == id(i) && m.GetState() == stSpeculative {
					n++
				}
			}
		}
		return n == 4
	})
}
