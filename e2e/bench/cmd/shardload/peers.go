package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// fleet is a provider of equal machines: the first ones Idle, the others Speculative. Transitions take no time. It holds a
// byte for each machine that was never touched, so that half a million of them do not keep its collector, and with it the
// two processors that the shard is measured on, busy.
type fleet struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	mu         sync.Mutex
	states     []uint8
	bound      map[int]binding // of those that are Configured
	configured func(cluster string)
	spell      func(i int) *pb.Machine
	find       func(id string) (int, error)
}

type binding struct {
	cluster string
	meta    map[string]string
}

func newFleet(idle, slots int) *fleet {
	f := &fleet{states: make([]uint8, idle+slots), bound: map[int]binding{}}
	f.spell, f.find = f.plain, f.numbered
	for i := range f.states {
		f.states[i] = uint8(pb.MachineState_MACHINE_STATE_SPECULATIVE)
		if i < idle {
			f.states[i] = uint8(pb.MachineState_MACHINE_STATE_IDLE)
		}
	}
	return f
}

// plain spells a machine out.
func (f *fleet) plain(i int) *pb.Machine {
	b := f.bound[i]
	m := &pb.Machine{Id: fmt.Sprintf("m%07d", i), State: pb.MachineState(f.states[i]), InstanceType: "m4", Zone: "z" + strconv.Itoa(i%8),
		CapacityType: pb.CapacityType_CAPACITY_TYPE_RESERVED, PricePerHour: 1 + float64(i%40)/100,
		Resources: &pb.Resources{Resources: map[string]string{"cpu": "4", "memory": "16Gi"}}, Labels: map[string]string{"rack": strconv.Itoa(i % 400)},
		Cluster: b.cluster, ShardMetadata: b.meta}
	if m.State != pb.MachineState_MACHINE_STATE_SPECULATIVE {
		m.Host = &pb.HostRef{Provider: "load", Ref: m.Id}
	}
	return m
}

func (f *fleet) serve(ctx context.Context) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.CapacityProviderName, Limits: rpc.Limits{ReadMaxBytes: 32 << 20, SendMaxBytes: 256 << 20},
		Access: rpc.AllowAll(bigfleetv1alpha1connect.CapacityProviderName, rpc.Allow(identity.Shard)),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCapacityProviderHandler(f, opts...)
		}}}})
	if err != nil {
		return "", err
	}
	go func() { _ = s.Run(ctx, ln) }()
	return ln.Addr().String(), nil
}

func (f *fleet) move(id string, to pb.MachineState, cluster string, meta map[string]string) (*connect.Response[pb.TransitionAck], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := f.find(id)
	if err != nil {
		return nil, err
	}
	f.states[i] = uint8(to)
	if delete(f.bound, i); cluster != "" {
		f.bound[i] = binding{cluster, meta}
	}
	return connect.NewResponse(&pb.TransitionAck{OperationId: "op", Machine: f.spell(i)}), nil
}

// numbered is the machine of an id.
func (f *fleet) numbered(id string) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(id, "m"))
	if err != nil || i >= len(f.states) {
		return 0, connect.NewError(connect.CodeNotFound, fmt.Errorf("no machine %s", id))
	}
	return i, nil
}

func (f *fleet) Create(_ context.Context, r *connect.Request[pb.CreateRequest]) (*connect.Response[pb.TransitionAck], error) {
	return f.move(r.Msg.MachineId, pb.MachineState_MACHINE_STATE_IDLE, "", nil)
}

func (f *fleet) Configure(_ context.Context, r *connect.Request[pb.ConfigureRequest]) (*connect.Response[pb.TransitionAck], error) {
	if f.configured != nil {
		f.configured(r.Msg.ClusterId)
	}
	return f.move(r.Msg.MachineId, pb.MachineState_MACHINE_STATE_CONFIGURED, r.Msg.ClusterId, r.Msg.ShardMetadata)
}

func (f *fleet) Drain(_ context.Context, r *connect.Request[pb.DrainRequest]) (*connect.Response[pb.TransitionAck], error) {
	return f.move(r.Msg.MachineId, pb.MachineState_MACHINE_STATE_IDLE, "", nil)
}

func (f *fleet) Delete(_ context.Context, r *connect.Request[pb.DeleteRequest]) (*connect.Response[pb.TransitionAck], error) {
	return f.move(r.Msg.MachineId, pb.MachineState_MACHINE_STATE_SPECULATIVE, "", nil)
}

func (f *fleet) Get(_ context.Context, r *connect.Request[pb.MachineRef]) (*connect.Response[pb.Machine], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := f.find(r.Msg.Id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(f.spell(i)), nil
}

// listPage is how many machines one answer carries.
const listPage = 20_000

func (f *fleet) List(_ context.Context, r *connect.Request[pb.ListFilter]) (*connect.Response[pb.MachineList], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := 0
	if len(r.Msg.SinceRevision) > 0 {
		from, _ = strconv.Atoi(string(r.Msg.SinceRevision))
	}
	end := len(f.states)
	if r.Msg.MaxResults > 0 {
		end = min(end, from+int(min(r.Msg.MaxResults, listPage)))
	}
	out := &pb.MachineList{Revision: []byte(strconv.Itoa(end)), More: end < len(f.states), Complete: len(r.Msg.SinceRevision) == 0 || from < end}
	for i := from; i < end; i++ { // nothing when all were read: what the shard commanded it knows from its acks
		out.Machines = append(out.Machines, f.spell(i))
	}
	return connect.NewResponse(out), nil
}

// provide serves a fleet until it is killed, and says where.
func provide(ctx context.Context, s settings) error {
	addr, err := newFleet(0, s.machines).serve(ctx)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	select {}
}

// stream is one operator.
type stream struct {
	cluster string
	s       *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	mu      sync.Mutex
}

func open(ctx context.Context, addr, cluster string) (*stream, error) {
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Log: slog.New(slog.DiscardHandler), Limits: rpc.Limits{ReadMaxBytes: 16 << 20, SendMaxBytes: 64 << 20}})
	if err != nil {
		return nil, err
	}
	o := &stream{cluster: cluster, s: rpc.Stub(c, bigfleetv1alpha1connect.NewShardClient).Session(ctx)}
	if err := o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: []string{"rollup-ack", "released", "reclaim-cancel"}}}}); err != nil {
		if _, why := o.s.Receive(); why != nil { // a send that fails says EOF; why, says the other direction
			err = why
		}
		return nil, err
	}
	return o, nil
}

func (o *stream) send(m *pb.OperatorMessage) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.s.Send(m)
}

// receive answers pulls until the stream ends.
func (o *stream) receive(acked *atomic.Int64) {
	for {
		m, err := o.s.Receive()
		if err != nil {
			return
		}
		switch {
		case m.GetBootstrapRequest() != nil:
			_ = o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{
				RequestId: m.GetBootstrapRequest().RequestId, UserData: []byte("x")}}})
		case m.GetAck().GetRollup() != nil:
			acked.Add(1)
		}
	}
}

// churn is one operator that asks for something else five times a second until it is killed: each time the shard plans again.
func churn(ctx context.Context, s settings) error {
	o, err := open(ctx, s.addr, "churn")
	if err != nil {
		return err
	}
	var acked atomic.Int64
	go o.receive(&acked)
	tick := time.NewTicker(200 * time.Millisecond)
	for n := 0; ; n++ {
		r := &pb.ClusterCapacityNeeds{ClusterId: "churn", Needs: []*pb.CapacityNeed{{RowId: "r", Priority: int32(n),
			AggregateResources: map[string]string{"cpu": strconv.Itoa(1000 + n%7)}, MinUnit: map[string]string{"cpu": "1"}}}}
		if err := o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: r}}); err != nil {
			return err
		}
		<-tick.C
	}
}

// operators opens the sessions of W-sessions, begins to send roll-ups when a byte comes on its input, and keeps their schedule until
// it is killed. Each second it prints how many streams are open and how many roll-ups were acknowledged.
func operators(ctx context.Context, s settings) error {
	w := workload.NewSessions(s.sessions, 1)
	var up, acked atomic.Int64
	gate := make(chan struct{}, 64) // dials at a time
	begin := make(chan struct{})    // roll-ups begin
	go func() { _, _ = io.ReadFull(os.Stdin, make([]byte, 1)); close(begin) }()
	rollups := make([]*pb.ClusterCapacityNeeds, s.sessions)
	for i := range rollups {
		rollups[i] = w.Rollup(int32(i))
	}
	for i := range s.sessions {
		go func() {
			name := workload.ClusterName(int32(i))
			var o *stream
			for o == nil { // as operators do: what was cut off in the storm dials again
				gate <- struct{}{}
				var err error
				o, err = open(ctx, s.addr, name)
				<-gate
				if err != nil {
					o = nil
					fmt.Fprintln(os.Stderr, err)
					time.Sleep(time.Second)
				}
			}
			up.Add(1)
			go o.receive(&acked)
			<-begin
			for next := time.Now().Add(time.Duration(float64(w.Phase[i]) / float64(workload.Period) * float64(s.period))); ; next = next.Add(s.period) {
				time.Sleep(time.Until(next))
				r := rollups[i]
				r.ClusterId = name
				if o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: r}}) != nil {
					return
				}
			}
		}()
	}
	for range time.Tick(time.Second) {
		fmt.Println(up.Load(), acked.Load())
	}
	return nil
}

// wakeAt sleeps until a moment, exactly: timers of a Go program that is otherwise idle come up to a millisecond late, since
// the poller counts in milliseconds, and that would be counted as the shard's time. The kernel's own sleep is late by some
// tens of microseconds.
func wakeAt(at time.Time) {
	for d := time.Until(at); d > 0; d = time.Until(at) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil)
	}
}

// reaction is B6a's other side: 100 operators and the provider in one process, so that one clock measures both ends.
func reaction(ctx context.Context, s settings) error {
	const clusters = 100
	idle := min(s.machines/2, int(clusters*(s.warm+s.window)/time.Second)*2)
	f := newFleet(idle, s.machines-idle)
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var took []int64
	f.configured = func(cluster string) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if at, waits := sent[cluster]; waits {
			took = append(took, int64(now.Sub(at)))
			delete(sent, cluster)
		}
	}
	addr, err := f.serve(ctx)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	var shard string
	if _, err := fmt.Fscanln(os.Stdin, &shard); err != nil {
		return err
	}
	var acked atomic.Int64
	var all []*stream
	for i := range clusters {
		o, err := open(ctx, shard, fmt.Sprintf("c%03d", i))
		if err != nil {
			return err
		}
		go o.receive(&acked)
		all = append(all, o)
	}
	runtime.LockOSThread() // for wakeAt
	defer runtime.UnlockOSThread()
	start := time.Now()
	missed := 0
	for n := 1; time.Since(start) < s.warm+s.window; n++ {
		for i, o := range all { // planned times: each cluster once a second, spread over it
			planned := start.Add(time.Duration(n)*time.Second + time.Duration(i)*time.Second/clusters)
			wakeAt(planned)
			mu.Lock()
			if _, waits := sent[o.cluster]; waits {
				missed++ // the one before has not arrived: it keeps its own time
			} else {
				sent[o.cluster] = planned
			}
			if planned.Sub(start) < s.warm {
				took = took[:0]
			}
			mu.Unlock()
			_ = o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: o.cluster, TimestampUnixNanos: planned.UnixNano(),
				Needs: []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": strconv.Itoa(4 * n)}, MinUnit: map[string]string{"cpu": "4"}, RowId: "r"}}}}})
		}
	}
	time.Sleep(2 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"ns": took, "missed": missed, "waiting": len(sent)})
}

// bareServer is P-conn's server, bareConns its clients.
func bareServer(context.Context, settings) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := probe.ServeConns(ln)
	defer server.Close()
	fmt.Println(ln.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func bareConns(ctx context.Context, s settings) error {
	return probe.OpenConns(ctx, s.addr, s.sessions, func() { fmt.Println("ready") })
}
