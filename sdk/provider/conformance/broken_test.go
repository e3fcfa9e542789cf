package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

type (
	pbAck  = bigfleetv1alpha1.TransitionAck
	pbMach = bigfleetv1alpha1.Machine
	pbList = bigfleetv1alpha1.MachineList
)

// mutation is one of the four requests, taken apart.
type mutation struct {
	kind            provider.Kind
	machine, shard  string
	epoch, sequence int64
	cluster         string
	metadata        map[string]string
	blob            []byte
	grace           int64
}

// wrong is a provider that is right but for what its hooks change: it stands in front of a good one.
type wrong struct {
	good bigfleetv1alpha1connect.CapacityProviderClient
	// before may answer or change a mutation; a nil ack and a nil error let it go on.
	before func(ctx context.Context, q *mutation) (*pbAck, error)
	// after may change the answer.
	after func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error)
	// shown changes every record that leaves.
	shown func(m *pbMach)
	// filter and listed change List.
	filter func(f *bigfleetv1alpha1.ListFilter)
	listed func(asked *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error)
	// read replaces Get.
	read func(ctx context.Context, id string) (*pbMach, error)
}

func (w *wrong) mutate(ctx context.Context, q mutation) (*connect.Response[pbAck], error) {
	var a *pbAck
	var err error
	if w.before != nil {
		a, err = w.before(ctx, &q)
	}
	if a == nil && err == nil {
		a, err = w.forward(ctx, q)
	}
	if w.after != nil {
		a, err = w.after(ctx, q, a, err)
	}
	if err != nil {
		return nil, err
	}
	if w.shown != nil && a.GetMachine() != nil {
		w.shown(a.GetMachine())
	}
	return connect.NewResponse(a), nil
}

func (w *wrong) forward(ctx context.Context, q mutation) (*pbAck, error) {
	var res *connect.Response[pbAck]
	var err error
	switch q.kind {
	case provider.Create:
		res, err = w.good.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence}))
	case provider.Configure:
		res, err = w.good.Configure(ctx, connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence, ClusterId: q.cluster, ShardMetadata: q.metadata, BootstrapBlob: q.blob,
		}))
	case provider.Drain:
		res, err = w.good.Drain(ctx, connect.NewRequest(&bigfleetv1alpha1.DrainRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence, GracePeriodSeconds: q.grace}))
	case provider.Delete:
		res, err = w.good.Delete(ctx, connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{MachineId: q.machine, ShardId: q.shard, ShardEpoch: q.epoch, SequenceNumber: q.sequence}))
	}
	if err != nil {
		return nil, again(err)
	}
	return res.Msg, nil
}

// again makes an error of a client one of a server.
func again(err error) error {
	var c *connect.Error
	if errors.As(err, &c) {
		return connect.NewError(c.Code(), errors.New(c.Message()))
	}
	return err
}

func (w *wrong) Create(ctx context.Context, r *connect.Request[bigfleetv1alpha1.CreateRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Create, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber()})
}
func (w *wrong) Configure(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ConfigureRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{
		kind: provider.Configure, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber(),
		cluster: r.Msg.GetClusterId(), metadata: r.Msg.GetShardMetadata(), blob: r.Msg.GetBootstrapBlob(),
	})
}
func (w *wrong) Drain(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DrainRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Drain, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber(), grace: r.Msg.GetGracePeriodSeconds()})
}
func (w *wrong) Delete(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DeleteRequest]) (*connect.Response[pbAck], error) {
	return w.mutate(ctx, mutation{kind: provider.Delete, machine: r.Msg.GetMachineId(), shard: r.Msg.GetShardId(), epoch: r.Msg.GetShardEpoch(), sequence: r.Msg.GetSequenceNumber()})
}

func (w *wrong) Get(ctx context.Context, r *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[pbMach], error) {
	if w.read != nil {
		m, err := w.read(ctx, r.Msg.GetId())
		if err != nil || m != nil {
			return connect.NewResponse(m), err
		}
	}
	res, err := w.good.Get(ctx, connect.NewRequest(r.Msg))
	if err != nil {
		return nil, again(err)
	}
	if w.shown != nil {
		w.shown(res.Msg)
	}
	return connect.NewResponse(res.Msg), nil
}

func (w *wrong) List(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ListFilter]) (*connect.Response[pbList], error) {
	f := proto.CloneOf(r.Msg)
	if w.filter != nil {
		w.filter(f)
	}
	res, err := w.good.List(ctx, connect.NewRequest(f))
	if err != nil {
		return nil, again(err)
	}
	l := res.Msg
	if w.shown != nil {
		for _, m := range l.GetMachines() {
			w.shown(m)
		}
	}
	if w.listed != nil {
		if l, err = w.listed(r.Msg, l); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(l), nil
}

// state reads the true record.
func (w *wrong) state(ctx context.Context, id string) *pbMach {
	res, err := w.good.Get(ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if err != nil {
		return nil
	}
	return res.Msg
}

// serve puts a handler on a loopback port over HTTP/2.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return l.Addr().String()
}

// good runs a right provider in this process and returns a client of it, its address and its cloud.
func good(t *testing.T, readiness provider.Readiness, options ...provider.Option) (bigfleetv1alpha1connect.CapacityProviderClient, string, string) {
	t.Helper()
	cloud, err := substrate.New(substrate.Config{Name: "good", Offerings: provider.GeneralCatalogue(100), Latency: map[string]substrate.Latency{"": {Constant: time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	served, err := cloud.Serve("127.0.0.1:0", provider.Common{}.Files())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := provider.New("good", served, append([]provider.Option{
		provider.WithStore(store.Memory()), provider.WithReadiness(readiness), provider.WithListener(l), provider.WithOfferings(provider.GeneralCatalogue(100)...),
		provider.WithLogger(slog.New(slog.DiscardHandler)), provider.WithReconcileInterval(100 * time.Millisecond), provider.WithJanitor(false),
		provider.WithShutdownGrace(time.Millisecond), provider.WithPrices(time.Hour, 0),
		provider.WithTimeouts(provider.Timeouts{Create: 2 * time.Second, Configure: 2 * time.Second, Delete: 2 * time.Second, DrainExtra: 2 * time.Second}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-p.Ready()
	return bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+l.Addr().String(), connect.WithGRPC(),
		connect.WithReadMaxBytes(256<<20)), l.Addr().String(), served.Addr
}

func quick(addr, control string, profiles ...conformance.Profile) conformance.Target {
	t := conformance.Target{Addr: addr, Profiles: profiles, Settle: 10 * time.Second, Watch: 100 * time.Millisecond, Limit: 2 * time.Second}
	if control != "" {
		t.Hooks.Faults = conformance.SubstrateControl(func() string { return control }, nil)
	}
	return t
}

// ownMarks replaces fencing by a careless one; the good provider behind it sees unfenced calls.
func ownMarks(stale func(q mutation, mark [2]int64) bool, key func(q mutation) string, moves func(err error) bool) func(*wrong) {
	return func(w *wrong) {
		var mu sync.Mutex
		marks := map[string][2]int64{}
		w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
			asked := *q
			if asked.shard == "" && asked.epoch == 0 && asked.sequence == 0 {
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			if mark, known := marks[key(asked)]; known && stale(asked, mark) {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("stale"))
			}
			q.shard, q.epoch, q.sequence = "", 0, 0
			a, err := w.forward(ctx, *q)
			if moves(err) {
				marks[key(asked)] = [2]int64{asked.epoch, asked.sequence}
			}
			return a, err
		}
	}
}

func older(q mutation, m [2]int64) bool {
	return q.epoch < m[0] || q.epoch == m[0] && q.sequence <= m[1]
}
func pair(q mutation) string { return q.shard + "\x00" + q.machine }
func always(error) bool      { return true }

// PROV-29.13, scenario 63: each wrong provider breaks one promise and is caught by the behaviour that stands for it.
func TestWrongProvidersAreCaught(t *testing.T) {
	const (
		speculative = bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
		idle        = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
		configured  = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
		failed      = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
	)
	tests := []struct {
		name   string
		caught []string // each of these must fail
		breaks func(w *wrong)
	}{
		{"forgets fencing", []string{"fence/stale-token", "fence/effect", "fence/before-repeat"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.shard, q.epoch, q.sequence = "", 0, 0
				return nil, nil
			}
		}},
		{"marks per shard", []string{"fence/machines-are-apart", "fence/out-of-order"}, ownMarks(older, func(q mutation) string { return q.shard }, always)},
		{"marks per machine", []string{"fence/shards-are-apart", "fence/first-contact"}, ownMarks(older, func(q mutation) string { return q.machine }, always)},
		{"lets an equal token pass", []string{"fence/stale-token"}, ownMarks(func(q mutation, m [2]int64) bool {
			return q.epoch < m[0] || q.epoch == m[0] && q.sequence < m[1]
		}, pair, always)},
		{"compares tokens as unsigned numbers", []string{"fence/negative"}, ownMarks(func(q mutation, m [2]int64) bool {
			return uint64(q.epoch) < uint64(m[0]) || q.epoch == m[0] && uint64(q.sequence) <= uint64(m[1])
		}, pair, always)},
		{"compares tokens by subtraction", []string{"fence/extremes"}, ownMarks(func(q mutation, m [2]int64) bool {
			return q.epoch-m[0] < 0 || q.epoch == m[0] && q.sequence-m[1] <= 0
		}, pair, always)},
		{"forgets the token of a refused call", []string{"fence/refusal-moves-mark", "fence/before-existence"}, ownMarks(older, pair, func(err error) bool { return err == nil })},
		{"looks for the machine before the fence", []string{"fence/before-existence", "fence/unknown-machines"}, func(w *wrong) {
			w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
				if q.machine != "" && w.state(ctx, q.machine) == nil {
					return nil, connect.NewError(connect.CodeNotFound, errors.New("no such machine"))
				}
				return nil, nil
			}
		}},
		{"uses FAILED_PRECONDITION for a wrong state", []string{"args/wrong-state", "args/wrong-state-of-a-slot", "fence/code-means-stale"}, func(w *wrong) {
			w.after = func(_ context.Context, _ mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeAborted {
					err = connect.NewError(connect.CodeFailedPrecondition, errors.New("wrong state"))
				}
				return a, err
			}
		}},
		{"answers NOT_FOUND with OK", []string{"args/unknown-machine"}, func(w *wrong) {
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeNotFound {
					return &pbAck{OperationId: "x-" + q.machine + q.kind.String(), Machine: &pbMach{Id: q.machine, State: speculative}}, nil
				}
				return a, err
			}
		}},
		{"takes an empty cluster", []string{"args/empty-cluster"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				if q.kind == provider.Configure && q.cluster == "" {
					q.cluster = "default"
				}
				return nil, nil
			}
		}},
		{"blocks until the work is done", []string{"life/create", "life/configure", "life/drain", "life/delete"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				for err == nil {
					m := w.state(ctx, q.machine)
					if m.GetState() != q.kind.Edge().Through {
						a.Machine = m
						break
					}
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
		{"drops empty values from metadata", []string{"meta/echo"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.metadata = maps.Clone(q.metadata)
				maps.DeleteFunc(q.metadata, func(_, v string) bool { return v == "" })
				return nil, nil
			}
		}},
		{"cuts long metadata", []string{"meta/size", "args/request-of-4-mib"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.metadata = maps.Clone(q.metadata)
				for k, v := range q.metadata {
					q.metadata[k] = v[:min(len(v), 400)]
				}
				return nil, nil
			}
		}},
		{"keeps old metadata keys", []string{"meta/replace"}, func(w *wrong) {
			var mu sync.Mutex
			old := map[string]map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				if q.kind != provider.Configure {
					return nil, nil
				}
				mu.Lock()
				defer mu.Unlock()
				merged := maps.Clone(old[q.machine])
				if merged == nil {
					merged = map[string]string{}
				}
				maps.Copy(merged, q.metadata)
				old[q.machine], q.metadata = merged, merged
				return nil, nil
			}
		}},
		{"clears the binding when Drain begins", []string{"life/drain", "meta/clear"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING {
					m.ShardMetadata = nil
				}
			}
		}},
		{"leaves the cluster on an idle machine", []string{"life/drain", "meta/clear", "field/every-record-seen"}, func(w *wrong) {
			var mu sync.Mutex
			last := map[string]string{}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if m.GetCluster() != "" {
					last[m.GetId()] = m.GetCluster()
				} else if m.GetState() == idle {
					m.Cluster = last[m.GetId()]
				}
			}
		}},
		{"gives every cycle the same operation id", []string{"once/new-cycle-new-id", "life/cycles"}, func(w *wrong) {
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if err == nil {
					a.OperationId = q.kind.String() + "-" + q.machine
				}
				return a, err
			}
		}},
		{"mints an id for each call", []string{"once/repeat-create", "once/repeat-configure", "once/repeat-drain", "once/repeat-delete", "race/burst"}, func(w *wrong) {
			var mu sync.Mutex
			n := 0
			w.after = func(_ context.Context, _ mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if n++; err == nil {
					a.OperationId = fmt.Sprint("op-", n)
				}
				return a, err
			}
		}},
		{"keys repeats by the target state", []string{"once/create-and-drain-differ"}, func(w *wrong) {
			var mu sync.Mutex
			last := map[string]string{} // what made the machine IDLE
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if (q.kind == provider.Create || q.kind == provider.Drain) && connect.CodeOf(err) != connect.CodeFailedPrecondition {
					if m := w.state(ctx, q.machine); m.GetState() == idle && last[q.machine] != "" {
						return &pbAck{OperationId: last[q.machine], Machine: m}, nil
					}
					if err == nil {
						last[q.machine] = a.GetOperationId()
					}
				}
				return a, err
			}
		}},
		{"says yes to a second cluster", []string{"once/conflict", "walk/random"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				if connect.CodeOf(err) == connect.CodeAlreadyExists {
					return &pbAck{OperationId: "configure-again-" + q.machine, Machine: w.state(ctx, q.machine)}, nil
				}
				return a, err
			}
		}},
		{"lets the newest metadata of a repeat win", []string{"once/first-values-stay"}, func(w *wrong) {
			var mu sync.Mutex
			newest := map[string]map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if q.kind == provider.Configure {
					newest[q.machine] = q.metadata
				}
				return nil, nil
			}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if m.GetState() == configured && newest[m.GetId()] != nil {
					m.ShardMetadata = newest[m.GetId()]
				}
			}
		}},
		{"reports CONFIGURED at once", []string{"ready/gate", "ready/never"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING {
					m.State = configured
				}
			}
		}},
		{"goes back when a transition fails", []string{"fail/configure-error"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.GetState() == failed && strings.HasPrefix(m.GetLastError(), "configure") {
					m.State, m.LastError, m.Failure, m.Cluster, m.ShardMetadata = idle, "", 0, "", nil
				}
			}
		}},
		{"fails without a reason", []string{"fail/configure-error", "field/every-record-seen"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.LastError = "" }
		}},
		{"turns errors of the substrate into the answer", []string{"fail/configure-error", "fail/drain-error"}, func(w *wrong) {
			w.after = func(ctx context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				for i := 0; err == nil && i < 50; i++ {
					m := w.state(ctx, q.machine)
					if m.GetState() == failed {
						return nil, connect.NewError(connect.CodeInternal, errors.New(m.GetLastError()))
					}
					if m.GetState() == q.kind.Edge().To {
						break
					}
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
		{"removes the record of a deleted machine", []string{"life/delete", "life/full-circle"}, func(w *wrong) {
			var mu sync.Mutex
			gone := map[string]bool{}
			w.after = func(_ context.Context, q mutation, a *pbAck, err error) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil && q.kind == provider.Delete {
					gone[q.machine] = true
				}
				return a, err
			}
			w.read = func(ctx context.Context, id string) (*pbMach, error) {
				mu.Lock()
				defer mu.Unlock()
				if gone[id] && w.state(ctx, id).GetState() == speculative {
					return nil, connect.NewError(connect.CodeNotFound, errors.New("gone"))
				}
				return nil, nil
			}
		}},
		{"ignores the states filter", []string{"list/states"}, func(w *wrong) {
			w.filter = func(f *bigfleetv1alpha1.ListFilter) { f.States = nil }
		}},
		{"ignores max_results", []string{"list/cap"}, func(w *wrong) {
			w.filter = func(f *bigfleetv1alpha1.ListFilter) { f.MaxResults = 0 }
		}},
		{"returns the newest cursor with a page", []string{"list/pages"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if l.GetMore() {
					if all, err := w.good.List(context.Background(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{})); err == nil {
						l.Revision = all.Msg.GetRevision()
					}
				}
				return l, nil
			}
		}},
		{"misses the newest change in a delta", []string{"list/delta", "list/old-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if !l.GetComplete() && len(l.GetMachines()) > 0 {
					l.Machines = l.GetMachines()[:len(l.GetMachines())-1]
				}
				return l, nil
			}
		}},
		{"answers an unknown cursor with an error", []string{"list/junk-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if len(f.GetSinceRevision()) > 0 && l.GetComplete() && f.GetMaxResults() == 0 {
					return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("bad cursor"))
				}
				return l, nil
			}
		}},
		{"reads junk as a delta of nothing", []string{"list/junk-cursors"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if len(f.GetSinceRevision()) > 0 && l.GetComplete() && f.GetMaxResults() == 0 {
					l.Machines, l.Complete = nil, false
				}
				return l, nil
			}
		}},
		{"moves the revision with every read", []string{"list/quiet"}, func(w *wrong) {
			var mu sync.Mutex
			n := byte(0)
			w.filter = func(f *bigfleetv1alpha1.ListFilter) {
				f.SinceRevision = f.SinceRevision[:max(0, len(f.SinceRevision)-1)]
			}
			w.listed = func(_ *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				mu.Lock()
				defer mu.Unlock()
				n++
				l.Revision = append(l.Revision, n)
				return l, nil
			}
		}},
		{"lists a machine twice", []string{"list/set"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				if n := len(l.GetMachines()); n > 1 && f.GetMaxResults() == 0 {
					l.Machines = append(l.Machines, l.GetMachines()[0])
				}
				return l, nil
			}
		}},
		{"misses moving machines in a list", []string{"list/cut"}, func(w *wrong) {
			w.listed = func(f *bigfleetv1alpha1.ListFilter, l *pbList) (*pbList, error) {
				l.Machines = slices.DeleteFunc(l.GetMachines(), func(m *pbMach) bool {
					s := m.GetState()
					return s != speculative && s != idle && s != configured && s != failed
				})
				return l, nil
			}
		}},
		{"has spot that is never interrupted", []string{"field/spot", "field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.InterruptionProbability = 0 }
		}},
		{"puts the zone into the labels", []string{"field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) {
				if m.Labels == nil {
					m.Labels = map[string]string{}
				}
				m.Labels["zone"] = m.GetZone()
			}
		}},
		{"has a negative price", []string{"field/inventory"}, func(w *wrong) {
			w.shown = func(m *pbMach) { m.PricePerHour = -1 }
		}},
		{"shows the boot data", []string{"meta/secret-stays-secret"}, func(w *wrong) {
			var mu sync.Mutex
			blobs := map[string]string{}
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				blobs[q.machine] = string(q.blob)
				return nil, nil
			}
			w.shown = func(m *pbMach) {
				mu.Lock()
				defer mu.Unlock()
				if b := blobs[m.GetId()]; b != "" && len(b) < 100 {
					m.Labels = map[string]string{"user-data": b}
				}
			}
		}},
		{"serves one machine at a time", []string{"race/slow-one"}, func(w *wrong) {
			var mu sync.Mutex
			w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
				mu.Lock()
				defer mu.Unlock()
				a, err := w.forward(ctx, *q)
				for i := 0; err == nil && i < 5000 && w.state(ctx, q.machine).GetState() == q.kind.Edge().Through; i++ {
					time.Sleep(time.Millisecond)
				}
				return a, err
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, _, control := good(t, provider.SubstrateReadiness())
			w := &wrong{good: client}
			test.breaks(w)
			mux := http.NewServeMux()
			mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(w, connect.WithReadMaxBytes(64<<20)))
			report, err := conformance.Execute(t.Context(), quick(serve(t, mux), control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault),
				conformance.Options{Seed: 1, Only: test.caught})
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, r := range report.Results {
				if r.Outcome == conformance.Fail {
					failed = append(failed, r.Name)
				}
			}
			for _, name := range test.caught {
				if !slices.Contains(failed, name) {
					t.Errorf("%s does not catch it", name)
				}
			}
			if report.Verdict != conformance.NotConformant {
				t.Errorf("verdict %s", report.Verdict)
			}
		})
	}
}

// The good provider behind the wrong ones, seen through the same wrapper, passes: what catches them is what they break.
func TestTheWrapperItselfConforms(t *testing.T) {
	client, _, control := good(t, provider.SubstrateReadiness())
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(&wrong{good: client}, connect.WithReadMaxBytes(64<<20)))
	conformance.Run(t, quick(serve(t, mux), control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault), conformance.Options{Seed: 1})
}
