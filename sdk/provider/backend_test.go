package provider_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// graspingCloud changes whatever it is given.
type graspingCloud struct {
	*cloud
	mu  sync.Mutex
	saw map[provider.Kind]string // operation id, empty when there was no deadline
}

func (c *graspingCloud) note(ctx context.Context, k provider.Kind, id string, m provider.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saw[k] = ""
	if _, limited := ctx.Deadline(); limited {
		c.saw[k] = id
	}
	m.Labels["rack"], m.Resources["cpu"] = "stolen", "999"
}

func (c *graspingCloud) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	c.note(ctx, provider.Create, op.ID, op.Machine)
	return c.cloud.Create(ctx, op)
}

func (c *graspingCloud) Configure(ctx context.Context, op provider.ConfigureOp) error {
	c.note(ctx, provider.Configure, op.ID, op.Machine)
	op.Metadata["purpose"] = "stolen"
	return nil
}

func (c *graspingCloud) Drain(ctx context.Context, op provider.DrainOp) error {
	c.note(ctx, provider.Drain, op.ID, op.Machine)
	return nil
}

// PROV-15.4, 8.3: each call of a backend has a deadline, the operation id of the ack, and a copy of the machine: what it does to the
// copy changes nothing, on this machine or on another of its offering.
func TestABackendGetsACopy(t *testing.T) {
	c := &graspingCloud{cloud: newCloud(), saw: map[provider.Kind]string{}}
	r := startCloud(t, c)
	acked := map[provider.Kind]string{}
	created, err := r.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(0)}))
	if err != nil {
		t.Fatal(err)
	}
	acked[provider.Create] = created.Msg.GetOperationId()
	r.settles(t, id(0), stIdle)
	bound, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
		MachineId: id(0), ClusterId: "red", BootstrapBlob: []byte("x"), ShardMetadata: map[string]string{"purpose": "batch"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	acked[provider.Configure] = bound.Msg.GetOperationId()
	if m := r.settles(t, id(0), stConfigured); m.GetShardMetadata()["purpose"] != "batch" {
		t.Errorf("the backend changed the metadata: %v", m.GetShardMetadata())
	}
	drained, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id(0)}))
	if err != nil {
		t.Fatal(err)
	}
	acked[provider.Drain] = drained.Msg.GetOperationId()
	r.settles(t, id(0), stIdle)
	for _, m := range r.list(t, nil).GetMachines() {
		if m.GetLabels()["rack"] != "r1" || m.GetResources().GetResources()["cpu"] != "2" {
			t.Errorf("the backend changed %s: labels %v, resources %v", m.GetId(), m.GetLabels(), m.GetResources())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, id := range acked {
		if c.saw[k] != id {
			t.Errorf("%s: the backend had operation %q under a deadline, the ack said %q", k, c.saw[k], id)
		}
	}
}

// fixedCloud cannot give hosts back.
type fixedCloud struct{ provider.Backend }

// ableCloud can do everything that is optional.
type ableCloud struct {
	*bindingCloud
	refuse error
}

func (c *ableCloud) Ready(context.Context, provider.Machine) error            { return nil }
func (c *ableCloud) Admit(provider.Kind, provider.Machine, string) error      { return c.refuse }
func (c *ableCloud) Prices(context.Context, func(provider.Quote) error) error { return nil }
func (c *ableCloud) Notify(ctx context.Context, _ func(provider.Notice)) error {
	<-ctx.Done()
	return nil
}

// PROV-15.5: what a backend can do besides is found by its interfaces and shown by GetProvider; an Admitter is asked before anything
// is accepted.
func TestCapabilitiesAreFound(t *testing.T) {
	names := func(r *running) []string {
		is, err := r.admin.GetProvider(t.Context(), connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return is.Msg.GetCapabilities()
	}
	optional := []string{"deleter", "readier", "pricer", "admitter", "notifier", "binder"}
	for _, one := range names(startCloud(t, fixedCloud{newCloud()})) {
		if slices.Contains(optional, one) {
			t.Errorf("a backend without it has %s", one)
		}
	}
	c := &ableCloud{bindingCloud: &bindingCloud{cloud: newCloud(), bindings: map[string]provider.Binding{}}, refuse: errors.New("the rack is full")}
	r := startCloud(t, c)
	has := names(r)
	for _, one := range optional {
		if !slices.Contains(has, one) {
			t.Errorf("%s is not shown in %v", one, has)
		}
	}
	if code := r.code(t, provider.Create, id(0)); code != connect.CodeInvalidArgument {
		t.Errorf("a Create that the backend does not admit: %s", code)
	}
	if m := r.settles(t, id(0), stSpeculative); m.GetLastError() != "" {
		t.Errorf("%v", m)
	}
}

// heldStore lets a test decide when a commit ends.
type heldStore struct {
	store.Store
	mu      sync.Mutex
	waiting chan struct{} // a commit has come; nil lets commits pass
	release chan struct{}
}

func (s *heldStore) Commit(batch []store.Write) error {
	s.mu.Lock()
	waiting, release := s.waiting, s.release
	s.waiting = nil
	s.mu.Unlock()
	if waiting != nil {
		close(waiting)
		<-release
	}
	return s.Store.Commit(batch)
}

// PROV-15.10, 16.4: while a commit waits for its disk, reads continue, of the same machine too, and see what was there before; a call that
// changes nothing is answered; and what waits is committed.
func TestReadsDoNotWaitForTheDisk(t *testing.T) {
	s := &heldStore{Store: store.Memory()}
	r := startCloud(t, newCloud(), provider.WithStore(s), provider.WithReconcileInterval(time.Hour))
	r.mustCreate(t, id(1))
	waiting, release := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.waiting, s.release = waiting, release
	s.mu.Unlock()
	let := sync.OnceFunc(func() { close(release) })
	defer let() // before the provider stops
	acked := make(chan error, 1)
	go func() {
		_, err := r.Create(context.WithoutCancel(t.Context()), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(0)}))
		acked <- err
	}()
	<-waiting
	if m := r.settles(t, id(0), stSpeculative); m.GetLastError() != "" {
		t.Errorf("before its commit: %v", m)
	}
	if n := len(r.list(t, nil).GetMachines()); n != 4 {
		t.Errorf("%d machines are listed meanwhile", n)
	}
	// The same machine's next mutation waits for it; another's that stores nothing does not.
	if _, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id(2)})); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("Drain of a slot meanwhile: %v", err)
	}
	select {
	case err := <-acked:
		t.Errorf("an ack before its commit (%v)", err)
	default:
	}
	let()
	if err := <-acked; err != nil {
		t.Error(err)
	}
	r.settles(t, id(0), stIdle)
}

// PROV-17.2, 17.9: a description refreshes what a machine is and never what it is for: marks that name another cluster are counted and
// the store stays right.
func TestTheStoreWinsOverMarks(t *testing.T) {
	c := &bindingCloud{cloud: newCloud(), bindings: map[string]provider.Binding{}}
	registry := prometheus.NewRegistry()
	r := startCloud(t, c, fastRounds(provider.WithRegisterer(registry))...)
	r.mustCreate(t, id(0))
	bound := r.must(t, provider.Configure, id(0), stConfigured)
	c.mu.Lock()
	c.bindings[bound.GetHost().GetRef()] = provider.Binding{Cluster: "somebody-else", Metadata: map[string]string{"a": "stolen"}}
	c.mu.Unlock()
	eventually(t, "drift to be counted", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "bigfleet_provider_drift_total" && f.GetMetric()[0].GetCounter().GetValue() > 1 {
				return true
			}
		}
		return false
	})
	m := r.settles(t, id(0), stConfigured)
	if m.GetCluster() != bound.GetCluster() || m.GetShardMetadata()["a"] != bound.GetShardMetadata()["a"] {
		t.Errorf("bound to %s with %v, it was %s with %v", m.GetCluster(), m.GetShardMetadata(), bound.GetCluster(), bound.GetShardMetadata())
	}
}

// earlyCloud asks the provider what it shows while it writes a binding.
type earlyCloud struct {
	*bindingCloud
	shows func(id string) bigfleetv1alpha1.MachineState
	mu    sync.Mutex
	seen  []bigfleetv1alpha1.MachineState
}

func (c *earlyCloud) see(m provider.Machine) {
	state := c.shows(m.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, state)
}

func (c *earlyCloud) Bind(ctx context.Context, m provider.Machine, b provider.Binding) error {
	c.see(m)
	return c.bindingCloud.Bind(ctx, m, b)
}

func (c *earlyCloud) Unbind(ctx context.Context, m provider.Machine) error {
	c.see(m)
	return c.bindingCloud.Unbind(ctx, m)
}

// PROV-17.6: the binding is on the host before CONFIGURED is shown, and off it before IDLE is.
func TestBindingsAreOnTheHostFirst(t *testing.T) {
	c := &earlyCloud{bindingCloud: &bindingCloud{cloud: newCloud(), bindings: map[string]provider.Binding{}}}
	r := startCloud(t, c)
	c.shows = func(id string) bigfleetv1alpha1.MachineState {
		m, err := r.Get(context.Background(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
		if err != nil {
			return 0
		}
		return m.Msg.GetState()
	}
	r.mustCreate(t, id(0))
	bound := r.must(t, provider.Configure, id(0), stConfigured)
	c.bindingCloud.mu.Lock()
	written := c.bindings[bound.GetHost().GetRef()]
	c.bindingCloud.mu.Unlock()
	if written.Cluster != bound.GetCluster() {
		t.Errorf("CONFIGURED for %q, the host says %q", bound.GetCluster(), written.Cluster)
	}
	r.must(t, provider.Drain, id(0), stIdle)
	c.bindingCloud.mu.Lock()
	_, still := c.bindings[bound.GetHost().GetRef()]
	c.bindingCloud.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	want := []bigfleetv1alpha1.MachineState{bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING, bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING}
	if still || !slices.Equal(c.seen, want) {
		t.Errorf("shown while the binding was written and cleared: %v; still there: %v", c.seen, still)
	}
}

// PROV-18.6, 22.4: without Deleter nothing is torn down; a retired machine is one that an operator has cleaned, and returns as IDLE with the
// same host under a new id.
func TestAFixedPoolGetsItsHostBack(t *testing.T) {
	c := newCloud()
	r := startCloud(t, fixedCloud{c}, fastRounds()...)
	r.mustCreate(t, id(0))
	r.must(t, provider.Configure, id(0), stConfigured)
	c.mu.Lock()
	c.hook = func(context.Context, provider.Kind, provider.Machine) error { return errors.New("the switch is off") }
	c.mu.Unlock()
	lost := r.must(t, provider.Drain, id(0), stFailed)
	retire := func(force bool) (string, error) {
		res, err := r.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id(0), Reason: "cleaned by hand", Force: force}))
		if err != nil {
			return "", err
		}
		return res.Msg.GetReplacementId(), nil
	}
	if _, err := retire(false); err == nil {
		t.Error("a machine that is still bound is retired without force")
	}
	next, err := retire(true)
	if err != nil || next == id(0) || next == "" {
		t.Fatalf("replacement %q, %v", next, err)
	}
	m := r.settles(t, next, stIdle)
	if m.GetHost().GetRef() != lost.GetHost().GetRef() || m.GetCluster() != "" {
		t.Errorf("%v, the host was %s", m, lost.GetHost().GetRef())
	}
}

// resettableCloud is a fixed pool whose hosts the janitor may reset.
type resettableCloud struct {
	fixedCloud
	reset func(provider.ResetOp) error
}

func (c resettableCloud) Reset(_ context.Context, op provider.ResetOp) error { return c.reset(op) }

// PROV-18.6: the janitor lets a fixed pool reset the host of a failed Configure, again with the same id while that is transient, and offers it under
// a new id. A failed Drain waits for RetireMachine, which passes force on.
func TestAFixedPoolResetsFailedHosts(t *testing.T) {
	c := newCloud()
	var mu sync.Mutex
	var asked []provider.ResetOp
	r := startCloud(t, resettableCloud{fixedCloud{c}, func(op provider.ResetOp) error {
		mu.Lock()
		defer mu.Unlock()
		if asked = append(asked, op); len(asked) == 1 {
			return provider.Transient(errors.New("not yet"))
		}
		return nil
	}}, append(fastRounds(), provider.WithRetention(provider.Retention{Failed: 10 * time.Millisecond, Lost: time.Hour, Stockout: time.Hour, Orphan: time.Hour}))...)
	r.mustCreate(t, id(0))
	broken := func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hook = func(context.Context, provider.Kind, provider.Machine) error { return err }
	}
	broken(errors.New("no kubelet"))
	failed := r.must(t, provider.Configure, id(0), stFailed)
	next := id(0) + "-g2"
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if _, err := r.Get(t.Context(), connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: next})); err == nil {
			break
		}
	}
	m := r.settles(t, next, stIdle)
	if m.GetHost().GetRef() != failed.GetHost().GetRef() || m.GetCluster() != "" {
		t.Errorf("%v, the host was %s", m, failed.GetHost().GetRef())
	}
	mu.Lock()
	if len(asked) != 2 || asked[0].ID != asked[1].ID || asked[0].ID == "" || asked[0].Force || asked[0].Machine.Cluster == "" {
		t.Errorf("asked %+v", asked)
	}
	mu.Unlock()
	broken(nil)
	r.must(t, provider.Configure, next, stConfigured)
	broken(errors.New("the switch is off"))
	r.must(t, provider.Drain, next, stFailed)
	time.Sleep(100 * time.Millisecond) // ten times the retention
	mu.Lock()
	if len(asked) != 2 {
		t.Errorf("a failed Drain was reset by itself: %+v", asked)
	}
	mu.Unlock()
	if _, err := r.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: next, Reason: "looked", Force: true})); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 3 || !asked[2].Force {
		t.Errorf("asked %+v", asked)
	}
}
