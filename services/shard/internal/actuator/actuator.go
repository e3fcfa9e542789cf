// Package actuator speaks to the providers for the core.
//
// It carries out three effects: Command (one attempt of one mutating call with a fresh fence token), GetMachine and
// ListMachines, each in a goroutine of its own with its own deadline, and answers each exactly once with an event. How
// many run at a time is the core's business. It never retries, never judges an outcome, and never learns what a command
// is for.
//
// The package owns the provider connections and the process-wide fence sequence. Records pass the machine gate here, off
// the core's goroutine, and Lists are handed over in pages. Start at New and Actuator.Apply. Tests cite SHARD-13.4,
// SHARD-14.6, SHARD-20.4.
package actuator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// Provider is one provider of the shard.
type Provider struct {
	Name   string
	Client bigfleetv1alpha1connect.CapacityProviderClient
	List   List // the List of the same provider
	// Admin claims the epoch of this process (SHARD-20.8). May be nil.
	Admin bigfleetv1alpha1connect.ProviderAdminClient
}

// Config is what an Actuator needs.
type Config struct {
	ShardID   string
	Epoch     int64
	Providers []Provider   // at least one
	Gate      *ingest.Gate // required
	Loop      *loop.Loop   // required
	Blobs     Blobs        // required
	Log       *slog.Logger // required
	// Trace begins the span of a command and returns the context for its call, and what ends it. It is called by Apply. May
	// be nil.
	Trace func(context.Context, core.Command) (context.Context, func(error))

	// OnClaim hears that a provider has answered to the claim of the epoch (Stores). It must not block. May be nil.
	OnClaim func()

	PageRows int // rows handed to the core at a time; 0 means 256, so that a step with new ones stays below 5 ms
	WireRows int // rows asked for at a time from providers that can be paged; 0 means 20000
}

// Blobs gives out bootstrap data by request id.
type Blobs interface {
	Bytes(request string) ([]byte, bool)
}

// Actuator carries out effects. Apply is called by the loop; everything else happens in goroutines that end with Stop.
type Actuator struct {
	cfg      Config
	sequence atomic.Int64
	outcomes *loop.Source
	pages    *loop.Source
	clients  map[string]Provider

	ctx     context.Context // of reads; ends with Stop
	cancel  context.CancelFunc
	idle    sync.Map        // *ingest.Batch by provider, while no List needs it
	claims  sync.Map        // *claim by provider
	stores  sync.Map        // name of the provider that was claimed first, by the identity of its store
	failing sync.Map        // providers whose last List failed, so that only a change is logged
	calls   context.Context // of commands; ends when the grace of a stop is over
	abandon context.CancelFunc
	reads   sync.WaitGroup
	writes  sync.WaitGroup

	starting sync.Mutex
	stopped  bool // nothing is started any more
}

// New returns an actuator that has not called anybody.
func New(c Config) *Actuator {
	if c.PageRows == 0 {
		c.PageRows = 256
	}
	if c.WireRows == 0 {
		c.WireRows = 20_000
	}
	a := &Actuator{cfg: c, outcomes: c.Loop.Source("outcomes", 4096, false), pages: c.Loop.Source("pages", 4, true),
		clients: map[string]Provider{}}
	for _, p := range c.Providers {
		a.clients[p.Name] = p
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.calls, a.abandon = context.WithCancel(context.Background())
	return a
}

// Apply carries out an effect that concerns providers and reports whether it was one. It never blocks.
func (a *Actuator) Apply(e core.Effect) bool {
	switch e := e.(type) {
	case core.Command:
		token := a.sequence.Add(1) // taken in the order of effects, so tokens of one machine rise in the order of calls
		blob, _ := a.cfg.Blobs.Bytes(e.Blob)
		blob = append([]byte(nil), blob...)
		ctx, traced := a.calls, func(error) {}
		if a.cfg.Trace != nil {
			ctx, traced = a.cfg.Trace(ctx, e)
		}
		a.start(&a.writes, func() { a.command(ctx, e, token, blob, traced) })
	case core.GetMachine:
		a.start(&a.reads, func() { a.get(e) })
	case core.ListMachines:
		a.start(&a.reads, func() { a.list(e) })
	default:
		return false
	}
	return true
}

// start makes a call, unless Stop has been called: the loop may be in a step that asks for one.
func (a *Actuator) start(calls *sync.WaitGroup, call func()) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if !a.stopped {
		calls.Go(call)
	}
}

// Stop ends reads at once and waits for the commands in flight until ctx ends; then they are abandoned (SHARD-3.9).
func (a *Actuator) Stop(ctx context.Context) {
	a.starting.Lock()
	a.stopped = true
	a.starting.Unlock()
	a.cancel()
	done := make(chan struct{})
	go func() { a.writes.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	a.abandon()
	<-done
	a.reads.Wait()
}

// command makes one attempt.
func (a *Actuator) command(ctx context.Context, e core.Command, token int64, blob []byte, traced func(error)) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(e.Timeout))
	defer cancel()
	start := time.Now()
	var ack *pb.TransitionAck
	claimed := a.claimEpoch(ctx, e.Provider)
	err := claimed
	if err == nil {
		ack, err = a.call(ctx, e, token, blob)
	}
	traced(err)
	clear(blob)
	done := core.CommandDone{Op: e.Op, Attempt: e.Attempt, Machine: e.Machine, Token: token, Sent: true, Duration: int64(time.Since(start))}
	if err != nil {
		done.Code, done.Detail, done.Sent = codeOf(err), message(err), claimed == nil && !rpc.NotSent(err)
		done.Sent = done.Sent || done.Code == core.CodeFailedPrecondition // the provider answered that a newer process exists
		if d, ok := rpc.Detail[*pb.FenceDetail](err); ok {
			done.HasFence, done.FenceEpoch, done.FenceSeq = true, d.MarkEpoch, d.MarkSequence
		}
	} else {
		done.ProviderOp = ack.GetOperationId()
		f, refused := a.cfg.Gate.Machine(ack.GetMachine(), e.Machine)
		if refused != nil {
			done.AckRejected, done.Detail = refused.Reason, refused.Text
		} else {
			f.Machine.Provider = e.Provider
			done.Ack = &f
		}
	}
	a.outcomes.Push(context.Background(), done)
}

func (a *Actuator) call(ctx context.Context, e core.Command, token int64, blob []byte) (*pb.TransitionAck, error) {
	c := a.clients[e.Provider].Client
	switch e.RPC {
	case core.RPCCreate:
		return unwrap(c.Create(ctx, connect.NewRequest(&pb.CreateRequest{MachineId: e.Machine, ShardId: a.cfg.ShardID,
			ShardEpoch: a.cfg.Epoch, SequenceNumber: token})))
	case core.RPCConfigure:
		return unwrap(c.Configure(ctx, connect.NewRequest(&pb.ConfigureRequest{MachineId: e.Machine, ClusterId: e.Cluster,
			BootstrapBlob: blob, ShardId: a.cfg.ShardID, ShardEpoch: a.cfg.Epoch, SequenceNumber: token, ShardMetadata: convert.Metadata(e.Metadata)})))
	case core.RPCDrain:
		return unwrap(c.Drain(ctx, connect.NewRequest(&pb.DrainRequest{MachineId: e.Machine, GracePeriodSeconds: e.GraceSecs,
			ShardId: a.cfg.ShardID, ShardEpoch: a.cfg.Epoch, SequenceNumber: token})))
	default:
		return unwrap(c.Delete(ctx, connect.NewRequest(&pb.DeleteRequest{MachineId: e.Machine, ShardId: a.cfg.ShardID,
			ShardEpoch: a.cfg.Epoch, SequenceNumber: token})))
	}
}

func unwrap[T any](r *connect.Response[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// get asks for one machine.
func (a *Actuator) get(e core.GetMachine) {
	ctx, cancel := context.WithTimeout(a.ctx, time.Duration(e.Timeout))
	defer cancel()
	m, err := unwrap(a.clients[e.Provider].Client.Get(ctx, connect.NewRequest(&pb.MachineRef{Id: e.Machine})))
	done := core.GetDone{Get: e.Get, Machine: e.Machine}
	switch {
	case err != nil:
		done.Code, done.Error = codeOf(err), message(err)
		done.NotFound = done.Code == core.CodeNotFound
	default:
		f, refused := a.cfg.Gate.Machine(m, e.Machine)
		if refused != nil {
			done.Rejected, done.Error = refused.Reason, refused.Text
		} else {
			f.Machine.Provider = e.Provider
			done.Row = &f
		}
	}
	a.outcomes.Push(context.Background(), done)
}

// deliver logs that a provider went silent or came back; the retries between the two are counted, not logged (SHARD-30.1).
func (a *Actuator) deliver(provider string, done core.ListDone) {
	switch {
	case done.Failed:
		if _, known := a.failing.Swap(provider, true); !known {
			a.cfg.Log.Warn("the provider cannot be listed; the shard keeps the last known inventory and retries",
				"provider", provider, "code", done.Code.String(), "err", done.Error)
		}
	default:
		if _, known := a.failing.LoadAndDelete(provider); known {
			a.cfg.Log.Info("the provider can be listed again", "provider", provider)
		}
	}
}

// codeOf is the status of a failed call. An error that is no status means that the stream broke.
func codeOf(err error) core.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return core.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return core.CodeCanceled
	}
	return core.Code(connect.CodeOf(err))
}

func message(err error) string {
	var c *connect.Error
	if errors.As(err, &c) {
		return c.Message()
	}
	return err.Error()
}
