package provider_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// PROV-6.15: the refusal of a stale token names shard, machine, the token offered and the mark, so that an operator sees which
// zombie speaks.
func TestAFenceNamesTheZombie(t *testing.T) {
	r := startCloud(t, newCloud())
	send := func(epoch, sequence int64) error {
		_, err := r.Drain(t.Context(), connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: id(0), ShardId: "s", ShardEpoch: epoch, SequenceNumber: sequence}))
		return err
	}
	if code := connect.CodeOf(send(7, 12)); code != connect.CodeAborted {
		t.Fatalf("Drain of a slot: %s", code)
	}
	err := send(6, 99)
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Code() != connect.CodeFailedPrecondition {
		t.Fatalf("a stale token: %v", err)
	}
	for _, d := range refused.Details() {
		v, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := v.(*bigfleetv1alpha1.FenceDetail); ok {
			if f.GetShardId() != "s" || f.GetMachineId() != id(0) || f.GetOfferedEpoch() != 6 || f.GetOfferedSequence() != 99 || f.GetMarkEpoch() != 7 || f.GetMarkSequence() != 12 {
				t.Errorf("%v", f)
			}
			return
		}
	}
	t.Errorf("no FenceDetail in %v", err)
}

// PROV-15.6, 11.10: each class of a backend's error becomes the failure that a reader sees, and the text becomes last_error.
func TestClassesBecomeFailures(t *testing.T) {
	text := errors.New("no luck")
	for i, test := range []struct {
		err  error
		want bigfleetv1alpha1.MachineFailure
	}{
		{provider.OutOfCapacity(text), bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY},
		{provider.Quota(text), bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_QUOTA},
		{provider.Credentials(text), bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CREDENTIALS},
		{text, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_SUBSTRATE},
	} {
		c := newCloud()
		c.hook = func(context.Context, provider.Kind, provider.Machine) error { return test.err }
		r := startCloud(t, c, fastRounds()...)
		if m := r.must(t, provider.Create, id(i), stFailed); m.GetFailure() != test.want || m.GetLastError() != "create: no luck" {
			t.Errorf("%v: %s, %q", test.err, m.GetFailure(), m.GetLastError())
		}
	}
}

// refining is a cloud that says what its hosts really are.
type refining struct {
	*cloud
	says func(provider.Attributes) provider.Attributes
}

func (c refining) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	h, err := c.cloud.Create(ctx, op)
	a := c.says(op.Machine.Attributes)
	h.Attributes = &a
	return h, err
}

// PROV-15.7, 9.10, 9.12: a backend refines what its host has; it cannot move it to another zone, nor take a label away that the
// slot had, nor break a rule of the record. What it gets is a copy.
func TestWhatABackendMayRefine(t *testing.T) {
	for name, test := range map[string]struct {
		says  func(provider.Attributes) provider.Attributes
		taken bool
	}{
		"less memory": {func(a provider.Attributes) provider.Attributes {
			a.Allocatable = map[string]string{"cpu": "1900m", "memory": "3Gi"}
			return a
		}, true},
		"one more label": {func(a provider.Attributes) provider.Attributes { a.Labels["disk"] = "fast"; return a }, true},
		"its own labels": {func(a provider.Attributes) provider.Attributes {
			a.Labels = map[string]string{"rack": "r1", "disk": "fast"}
			return a
		}, true},
		"another architecture": {func(a provider.Attributes) provider.Attributes {
			a.Labels = map[string]string{"rack": "r1", "disk": "fast", "kubernetes.io/arch": "arm64"}
			return a
		}, false},
		"another zone":   {func(a provider.Attributes) provider.Attributes { a.Zone = "there-b"; return a }, false},
		"no rack":        {func(a provider.Attributes) provider.Attributes { a.Labels = nil; return a }, false},
		"negative price": {func(a provider.Attributes) provider.Attributes { a.PricePerHour = -1; return a }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := startCloud(t, refining{newCloud(), test.says})
			slot := r.list(t, nil).GetMachines()[0]
			m := r.must(t, provider.Create, slot.GetId(), stIdle)
			if l := m.GetLabels(); l["kubernetes.io/os"] != "linux" || l["kubernetes.io/arch"] != "amd64" { // PROV-15.11
				t.Errorf("the labels are %v", l)
			}
			if m.GetZone() != "here-a" || m.GetLabels()["rack"] != "r1" || m.GetPricePerHour() != 0.1 {
				t.Errorf("the host is %v", m)
			}
			if refined := m.GetLabels()["disk"] == "fast" || m.GetAllocatable().GetResources()["memory"] == "3Gi"; refined != test.taken {
				t.Errorf("refined %v, want %v: %v", refined, test.taken, m)
			}
			for _, other := range r.list(t, nil).GetMachines() {
				if other.GetId() != slot.GetId() && len(other.GetLabels()) != 3 {
					t.Errorf("another machine changed too: %v", other)
				}
			}
		})
	}
}

// PROV-15.8, 9.11: the same offerings, in whatever order, give the same ids; two that give the same ones are refused by name.
func TestOfferingsKeepTheirIDs(t *testing.T) {
	large := small(2)
	large.Name, large.InstanceType = "large", "c1.large"
	ids := func(o ...provider.Offering) (all []string) {
		for _, m := range startCloud(t, newCloud(), provider.WithOfferings(o...)).list(t, nil).GetMachines() {
			all = append(all, m.GetId())
		}
		slices.Sort(all)
		return all
	}
	if a, b := ids(small(3), large), ids(large, small(3)); !slices.Equal(a, b) || len(a) != 5 || a[0] != "cloud-large-0" {
		t.Errorf("%v and %v", a, b)
	}
	_, err := provider.New("cloud", newCloud(), provider.WithStore(store.Memory()), provider.WithReadiness(provider.NoReadiness()), provider.WithOfferings(small(1), small(1)))
	if err == nil || !strings.Contains(err.Error(), `"small"`) || !strings.Contains(err.Error(), "cloud-small-0") {
		t.Errorf("the same offering twice: %v", err)
	}
}

// lines collects log records.
type lines struct {
	slog.Handler
	mu  *sync.Mutex
	all *[]map[string]any
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	one := map[string]any{"msg": r.Message}
	r.Attrs(func(a slog.Attr) bool { one[a.Key] = a.Value.Any(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.all = append(*l.all, one)
	return nil
}

// PROV-21.2, 21.4: one line for each mutation that was accepted and one for each that settled, with operation, machine, kind,
// duration and outcome; no machine, cluster or error text is a label of a metric.
func TestLogsAndLabels(t *testing.T) {
	var mu sync.Mutex
	var all []map[string]any
	registry := prometheus.NewRegistry()
	c := newCloud()
	r := startCloud(t, c, fastRounds(provider.WithRegisterer(registry), provider.WithLogger(slog.New(lines{slog.DiscardHandler, &mu, &all})))...)
	r.must(t, provider.Create, id(0), stIdle)
	r.must(t, provider.Configure, id(0), stConfigured)
	c.mu.Lock()
	c.hook = func(context.Context, provider.Kind, provider.Machine) error { return errors.New("the ladder fell") }
	c.mu.Unlock()
	failed := r.must(t, provider.Drain, id(0), stFailed)
	gathered, err := registry.Gather()
	if err != nil || len(gathered) < 20 {
		t.Fatalf("%d metrics, %v", len(gathered), err)
	}
	for _, family := range gathered {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); strings.Contains(v, id(0)) || v == "red" || strings.Contains(v, "ladder") || strings.Contains(v, failed.GetHost().GetRef()) {
					t.Errorf("%s has %s=%q", family.GetName(), l.GetName(), v)
				}
			}
		}
	}
	if err := r.stop(); err != nil { // the line of the end comes after the state is shown
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, kind := range []string{"create", "configure", "drain"} {
		accepted := slices.DeleteFunc(slices.Clone(all), func(l map[string]any) bool { return l["msg"] != "accepted" || l["kind"] != kind })
		settled := slices.DeleteFunc(slices.Clone(all), func(l map[string]any) bool { return l["msg"] != "settled" || l["kind"] != kind })
		if len(accepted) != 1 || len(settled) != 1 {
			t.Errorf("%s: %d lines at acceptance, %d at the end, want one each", kind, len(accepted), len(settled))
			continue
		}
		a, s := accepted[0], settled[0]
		outcome := map[bool]string{true: "failed", false: "ok"}[kind == "drain"]
		if a["operation"] != s["operation"] || a["operation"] == "" || a["machine"] != id(0) || s["machine"] != id(0) || s["took"] == nil || s["outcome"] != outcome {
			t.Errorf("%s: %v, then %v", kind, a, s)
		}
	}
}

// abroad makes every caller one of another machine.
type abroad struct{ net.Listener }

type abroadConn struct{ net.Conn }

func (l abroad) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return abroadConn{c}, err
}

func (abroadConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4711} }

// PROV-22.2: in plaintext an operator's orders are taken from the provider's own machine alone; reads and mutations of the fleet
// are served.
func TestOrdersFromAfarAreRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := startCloudAt(t, abroad{l}, newCloud())
	for name, order := range map[string]func() error{
		"RetireMachine": func() error {
			_, err := r.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id(0), Reason: "x"}))
			return err
		},
		"SetMutations": func() error {
			_, err := r.admin.SetMutations(t.Context(), connect.NewRequest(&bigfleetv1alpha1.SetMutationsRequest{Mode: bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED, Reason: "x"}))
			return err
		},
		"AcknowledgeLoss": func() error {
			_, err := r.admin.AcknowledgeLoss(t.Context(), connect.NewRequest(&bigfleetv1alpha1.AcknowledgeLossRequest{}))
			return err
		},
	} {
		if code := connect.CodeOf(order()); code != connect.CodePermissionDenied {
			t.Errorf("%s from another machine: %s", name, code)
		}
	}
	if _, err := r.admin.GetProvider(t.Context(), connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{})); err != nil {
		t.Error(err)
	}
	r.must(t, provider.Create, id(0), stIdle)
}
