package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"connectrpc.com/connect"
)

// forgetful is a provider that breaks a promise of section 12: it is right until it is started again.
type forgetful struct {
	name   string
	caught []string
	memory bool // its state is in memory
	breaks func(w *wrong, starts func() int)
}

func brokenRestarts() []forgetful {
	return []forgetful{
		{"loses its state", []string{"last/rest", "last/marks", "last/repeats"}, true, func(*wrong, func() int) {}},
		{"forgets its marks", []string{"last/marks"}, false, func(w *wrong, starts func() int) {
			var mu sync.Mutex
			marks, age := map[string][2]int64{}, 0
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if now := starts(); now != age {
					age = now
					clear(marks)
				}
				asked := *q
				q.shard, q.epoch, q.sequence = "", 0, 0
				if mark, known := marks[pair(asked)]; known && asked.shard != "" && older(asked, mark) {
					return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("stale"))
				}
				marks[pair(asked)] = [2]int64{asked.epoch, asked.sequence}
				return nil, nil
			}
		}},
		{"counts its operations from the start again", []string{"last/repeats"}, false, func(w *wrong, starts func() int) {
			var mu sync.Mutex
			ids, n, age := map[string]string{}, 0, 0
			w.after = func(_ context.Context, _ mutation, a *pbAck, err error) (*pbAck, error) {
				if err != nil {
					return a, err
				}
				mu.Lock()
				defer mu.Unlock()
				if now := starts(); now != age {
					age, n = now, 0
					clear(ids)
				}
				if ids[a.GetOperationId()] == "" {
					n++
					ids[a.GetOperationId()] = fmt.Sprint("operation-", n)
				}
				a.OperationId = ids[a.GetOperationId()]
				return a, nil
			}
		}},
		{"takes what was cut off for done", []string{"last/cut-off-configure", "last/cut-off-drain"}, false, func(w *wrong, _ func() int) {
			w.shown = func(m *pbMach) {
				if m.GetFailure() == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED && m.GetHost() != nil {
					m.State, m.Failure, m.LastError, m.Cluster, m.ShardMetadata = idle, 0, "", "", nil
				}
			}
		}},
		{"has an empty delta for a cursor from before", []string{"last/cursors"}, false, func(w *wrong, starts func() int) {
			var mu sync.Mutex
			given := map[string]int{}
			w.listed = func(asked *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				mu.Lock()
				defer mu.Unlock()
				now := starts()
				if at, known := given[string(asked.GetSinceRevision())]; known && at != now {
					return &pbList{Revision: l.GetRevision()}, nil
				}
				if _, known := given[string(l.GetRevision())]; !known {
					given[string(l.GetRevision())] = now
				}
				return l, nil
			}
		}},
		{"takes an old cursor for one of its new store", []string{"last/store-loss"}, false, func(w *wrong, _ func() int) {
			w.listed = func(asked *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if len(asked.GetSinceRevision()) > 0 && l.GetComplete() {
					return &pbList{Revision: l.GetRevision()}, nil
				}
				return l, nil
			}
		}},
	}
}

// PROV-29.13, 12.1 to 12.5: what is forgotten with kill -9 is found.
func TestForgetfulProvidersAreCaught(t *testing.T) {
	for _, test := range brokenRestarts() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t, 300)
			if test.memory {
				if err := p.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.Args = append(p.Args, "--state", "memory")
				p.StartT(t)
			}
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(transport.CloseIdleConnections)
			w := &wrong{good: bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+p.Addr(), connect.WithGRPC())}
			var mu sync.Mutex
			starts := 0
			test.breaks(w, func() int { mu.Lock(); defer mu.Unlock(); return starts })
			mux := http.NewServeMux()
			mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(w, connect.WithReadMaxBytes(64<<20)))
			front := serve(t, mux)
			target := p.Target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable)
			start := target.Hooks.Start
			target.Addr = front
			target.Hooks.Start = func(ctx context.Context) (string, error) {
				mu.Lock()
				starts++
				mu.Unlock()
				_, err := start(ctx)
				return front, err
			}
			judged(t, target, test.caught)
		})
	}
}

// PROV-29.13, 2.6 to 2.9: a provider that asks for certificates and does not read whose they are is caught.
func TestAProviderWithoutIdentitiesIsCaught(t *testing.T) {
	t.Parallel()
	client, _, _ := good(t, provider.SubstrateReadiness())
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(&wrong{good: client}, connect.WithReadMaxBytes(64<<20)))
	files, certs := authority(t)
	source, err := identity.Load(files, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: mux, TLSConfig: source.ServerConfig(), Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols.SetHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	config, err := certs("bigfleet://shard/conformance-mtls")
	if err != nil {
		t.Fatal(err)
	}
	judged(t, conformance.Target{
		Addr: l.Addr().String(), TLS: config, Shard: "conformance-mtls", Hooks: conformance.Hooks{Certs: certs},
		Profiles: []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot},
	}, []string{"who/shard", "who/readers", "who/nobody"})
}

// PROV-29.13, 3.4: a provider that gives up what it does not see for a moment is caught.
func TestAProviderWithoutPatienceIsCaught(t *testing.T) {
	t.Parallel()
	client, _, control := good(t, provider.SubstrateReadiness())
	target := quick("", control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault)
	f := &lossy{Faults: target.Hooks.Faults}
	target.Hooks.Faults = f
	w := &wrong{good: client, shown: func(m *pbMach) {
		if f.once.Load() && (m.GetState() == idle || m.GetState() == configured) {
			m.State, m.LastError, m.Failure = failed, "host: gone", bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST
		}
	}}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(w, connect.WithReadMaxBytes(64<<20)))
	target.Addr = serve(t, mux)
	judged(t, target, []string{"loss/everything-at-once"})
}

// lossy remembers that a host was lost once.
type lossy struct {
	conformance.Faults
	once atomic.Bool
}

func (f *lossy) Lose(ctx context.Context, machines ...string) error {
	f.once.Store(true)
	return f.Faults.Lose(ctx, machines...)
}

// PROV-29.3, 29.13: each area catches some wrong provider, but for size, whose machines no test of this package has.
func TestEveryAreaCatchesSomething(t *testing.T) {
	caught := map[string]bool{"who": true, "loss": true} // above, by name
	for _, b := range slices.Concat(brokenFences(), brokenLives(), brokenMetadata(), brokenRepeats(), brokenLists()) {
		for _, name := range b.caught {
			area, _, _ := strings.Cut(name, "/")
			caught[area] = true
		}
	}
	for _, b := range brokenRestarts() {
		for _, name := range b.caught {
			area, _, _ := strings.Cut(name, "/")
			caught[area] = true
		}
	}
	for _, area := range []string{"life", "args", "fence", "once", "race", "meta", "field", "list", "fail", "ready", "last", "loss", "who", "walk"} {
		if !caught[area] {
			t.Errorf("no wrong provider is caught by %s", area)
		}
	}
}

// judged runs the behaviours and says which of them did not fail.
func judged(t *testing.T, target conformance.Target, caught []string) {
	t.Helper()
	target.Settle, target.Watch, target.Limit = 10*time.Second, 100*time.Millisecond, 2*time.Second
	report, err := conformance.Execute(t.Context(), target, conformance.Options{Seed: 1, Only: caught})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range caught {
		if !slices.ContainsFunc(report.Results, func(r conformance.Result) bool { return r.Name == name && r.Outcome == conformance.Fail }) {
			var text strings.Builder
			_ = report.WriteText(&text)
			t.Errorf("%s does not catch it:\n%s", name, text.String())
		}
	}
}
