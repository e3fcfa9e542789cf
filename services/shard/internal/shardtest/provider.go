// Package shardtest has the two peers of a shard for tests: a small provider and a small operator that speak the wire
// over real HTTP/2, and do wrong on demand what real ones do wrong. No product code imports it.
package shardtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Call is one mutating call that the provider got.
type Call struct {
	RPC      string
	Machine  string
	Cluster  string
	Blob     string
	Metadata map[string]string
	Grace    int64
	Shard    string
	Epoch    int64
	Sequence int64
}

// Provider is a provider in memory. Transitions take Dwell; the zero value makes them at once.
type Provider struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler

	mu       sync.Mutex
	machines map[string]*pb.Machine
	changed  map[string]uint64
	revision uint64
	marks    map[string][2]int64
	ops      int
	calls    []Call

	// Dwell is how long a transition takes.
	Dwell time.Duration
	// NoCursor ignores cursors and answers with an empty revision.
	NoCursor bool
	// Before is asked before a mutating call; an error is the answer. May be nil.
	Before func(Call) error
	// After is asked after a mutating call took effect; an error hides the answer. May be nil.
	After func(Call) error
	// OnList may change the answer to a List. May be nil.
	OnList func(*pb.MachineList) error
	// Ack may change the ack of a call. May be nil.
	Ack func(Call, *pb.TransitionAck)

	Addr string
}

// NewProvider returns a provider with the given machines.
func NewProvider(machines ...*pb.Machine) *Provider {
	p := &Provider{machines: map[string]*pb.Machine{}, changed: map[string]uint64{}, marks: map[string][2]int64{}}
	for _, m := range machines {
		p.put(m)
	}
	return p
}

// Slot is a Speculative machine.
func Slot(id string, price float64, cpu, memory string) *pb.Machine {
	return &pb.Machine{Id: id, State: pb.MachineState_MACHINE_STATE_SPECULATIVE, InstanceType: "m4", Zone: "z1",
		CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND, PricePerHour: price,
		Resources: &pb.Resources{Resources: map[string]string{"cpu": cpu, "memory": memory}}}
}

// Host is a machine with a host in a state, bound to a cluster if one is named.
func Host(id string, state pb.MachineState, cluster string) *pb.Machine {
	m := Slot(id, 1, "4", "16Gi")
	m.State, m.Cluster = state, cluster
	m.Host = &pb.HostRef{Provider: "test", Ref: "ref-" + id}
	return m
}

// Serve runs the provider on loopback until the test ends.
func (p *Provider) Serve(t testing.TB) *Provider {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Addr = ln.Addr().String()
	t.Cleanup(p.ServeOn(t, ln, nil))
	return p
}

// ServeOn runs the provider on a listener, with TLS if it is given an identity, until stop is called.
func (p *Provider) ServeOn(t testing.TB, ln net.Listener, id *identity.Source) (stop func()) {
	t.Helper()
	s, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Identity: id, Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.CapacityProviderName, Limits: rpc.Limits{ReadMaxBytes: 32 << 20, SendMaxBytes: 256 << 20},
		Access: rpc.AllowAll(bigfleetv1alpha1connect.CapacityProviderName, rpc.Allow(identity.Shard)),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCapacityProviderHandler(p, opts...)
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, ln) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a server ended with %v", err)
		}
	}
}

func (p *Provider) put(m *pb.Machine) {
	p.revision++
	p.machines[m.Id] = m
	p.changed[m.Id] = p.revision
}

// Edit changes one machine, as something outside would.
func (p *Provider) Edit(id string, f func(*pb.Machine)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := proto.Clone(p.machines[id]).(*pb.Machine)
	f(m)
	p.put(m)
}

// Set changes how the provider behaves.
func (p *Provider) Set(f func(*Provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

// Add adds or replaces a machine.
func (p *Provider) Add(m *pb.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(m)
}

// Remove makes a machine disappear.
func (p *Provider) Remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machines, id)
	delete(p.changed, id)
	p.revision++
}

// Calls lists the mutating calls so far; rpcs may narrow it.
func (p *Provider) Calls(rpcs ...string) []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Call
	for _, c := range p.calls {
		if len(rpcs) == 0 || slices.Contains(rpcs, c.RPC) {
			out = append(out, c)
		}
	}
	return out
}

// Machine returns a copy of one machine, or nil.
func (p *Provider) Machine(id string) *pb.Machine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machines[id]; m != nil {
		return proto.Clone(m).(*pb.Machine)
	}
	return nil
}

// Count is how many machines are in a state.
func (p *Provider) Count(s pb.MachineState) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.machines {
		if m.State == s {
			n++
		}
	}
	return n
}

// begin fences, records and checks one call.
func (p *Provider) begin(c Call) error {
	p.mu.Lock()
	key := c.Shard + "\x00" + c.Machine
	mark, seen := p.marks[key]
	if seen && (c.Epoch < mark[0] || c.Epoch == mark[0] && c.Sequence <= mark[1]) {
		p.mu.Unlock()
		return rpc.NewError(connect.CodeFailedPrecondition, "stale token", &pb.FenceDetail{ShardId: c.Shard, MachineId: c.Machine,
			OfferedEpoch: c.Epoch, OfferedSequence: c.Sequence, MarkEpoch: mark[0], MarkSequence: mark[1]})
	}
	p.marks[key] = [2]int64{c.Epoch, c.Sequence}
	p.calls = append(p.calls, c)
	before := p.Before
	p.mu.Unlock()
	if before != nil {
		return before(c)
	}
	return nil
}

// transit moves a machine over an edge, after the dwell.
func (p *Provider) transit(c Call, from, middle, to pb.MachineState, change func(m *pb.Machine, arrived bool)) (*connect.Response[pb.TransitionAck], error) {
	if err := p.begin(c); err != nil {
		return nil, err
	}
	p.mu.Lock()
	m := p.machines[c.Machine]
	switch {
	case m == nil:
		p.mu.Unlock()
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no machine %s", c.Machine))
	case m.State == middle || m.State == to && (to != pb.MachineState_MACHINE_STATE_IDLE || from != pb.MachineState_MACHINE_STATE_IDLE):
		p.mu.Unlock()
		return connect.NewResponse(&pb.TransitionAck{OperationId: "op-again", Machine: m}), nil
	case m.State != from:
		p.mu.Unlock()
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("machine is %s", m.State))
	}
	next := proto.Clone(m).(*pb.Machine)
	next.State = middle
	change(next, false)
	p.put(next)
	p.ops++
	ack := &pb.TransitionAck{OperationId: fmt.Sprintf("op-%d", p.ops), Machine: next}
	dwell, after, edit := p.Dwell, p.After, p.Ack
	p.mu.Unlock()
	arrive := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if m := p.machines[c.Machine]; m != nil && m.State == middle {
			done := proto.Clone(m).(*pb.Machine)
			done.State = to
			change(done, true)
			p.put(done)
		}
	}
	if dwell > 0 {
		time.AfterFunc(dwell, arrive)
	} else {
		arrive()
	}
	if edit != nil {
		edit(c, ack)
	}
	if after != nil {
		if err := after(c); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(ack), nil
}

// Create makes a host.
func (p *Provider) Create(_ context.Context, r *connect.Request[pb.CreateRequest]) (*connect.Response[pb.TransitionAck], error) {
	m := r.Msg
	c := Call{RPC: "Create", Machine: m.MachineId, Shard: m.ShardId, Epoch: m.ShardEpoch, Sequence: m.SequenceNumber}
	return p.transit(c, pb.MachineState_MACHINE_STATE_SPECULATIVE, pb.MachineState_MACHINE_STATE_CREATING, pb.MachineState_MACHINE_STATE_IDLE,
		func(m *pb.Machine, arrived bool) {
			if arrived {
				m.Host = &pb.HostRef{Provider: "test", Ref: "ref-" + m.Id}
			}
		})
}

// Configure binds a machine.
func (p *Provider) Configure(_ context.Context, r *connect.Request[pb.ConfigureRequest]) (*connect.Response[pb.TransitionAck], error) {
	m := r.Msg
	c := Call{RPC: "Configure", Machine: m.MachineId, Cluster: m.ClusterId, Blob: string(m.BootstrapBlob), Metadata: m.ShardMetadata,
		Shard: m.ShardId, Epoch: m.ShardEpoch, Sequence: m.SequenceNumber}
	return p.transit(c, pb.MachineState_MACHINE_STATE_IDLE, pb.MachineState_MACHINE_STATE_CONFIGURING, pb.MachineState_MACHINE_STATE_CONFIGURED,
		func(m *pb.Machine, _ bool) { m.Cluster, m.ShardMetadata = c.Cluster, c.Metadata })
}

// Drain releases a machine.
func (p *Provider) Drain(_ context.Context, r *connect.Request[pb.DrainRequest]) (*connect.Response[pb.TransitionAck], error) {
	m := r.Msg
	c := Call{RPC: "Drain", Machine: m.MachineId, Grace: m.GracePeriodSeconds, Shard: m.ShardId, Epoch: m.ShardEpoch, Sequence: m.SequenceNumber}
	return p.transit(c, pb.MachineState_MACHINE_STATE_CONFIGURED, pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_IDLE,
		func(m *pb.Machine, arrived bool) {
			if arrived {
				m.Cluster, m.ShardMetadata = "", nil
			}
		})
}

// Delete gives a host back.
func (p *Provider) Delete(_ context.Context, r *connect.Request[pb.DeleteRequest]) (*connect.Response[pb.TransitionAck], error) {
	m := r.Msg
	c := Call{RPC: "Delete", Machine: m.MachineId, Shard: m.ShardId, Epoch: m.ShardEpoch, Sequence: m.SequenceNumber}
	return p.transit(c, pb.MachineState_MACHINE_STATE_IDLE, pb.MachineState_MACHINE_STATE_DELETING, pb.MachineState_MACHINE_STATE_SPECULATIVE,
		func(m *pb.Machine, arrived bool) {
			if arrived {
				m.Host = nil
			}
		})
}

// Get reads one machine.
func (p *Provider) Get(_ context.Context, r *connect.Request[pb.MachineRef]) (*connect.Response[pb.Machine], error) {
	if m := p.Machine(r.Msg.Id); m != nil {
		return connect.NewResponse(m), nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no machine %s", r.Msg.Id))
}

// List reads machines, changed ones with a cursor.
func (p *Provider) List(_ context.Context, r *connect.Request[pb.ListFilter]) (*connect.Response[pb.MachineList], error) {
	p.mu.Lock()
	out := &pb.MachineList{Complete: true}
	since := uint64(0)
	if !p.NoCursor {
		out.Revision = binary.BigEndian.AppendUint64(nil, p.revision)
		if len(r.Msg.SinceRevision) == 8 {
			since, out.Complete = binary.BigEndian.Uint64(r.Msg.SinceRevision), false
		}
	} else {
		out.Complete = false
	}
	for id, m := range p.machines {
		if p.changed[id] > since {
			out.Machines = append(out.Machines, m)
		}
	}
	slices.SortFunc(out.Machines, func(a, b *pb.Machine) int { return strings.Compare(a.Id, b.Id) })
	edit := p.OnList
	p.mu.Unlock()
	if edit != nil {
		if err := edit(out); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(out), nil
}
