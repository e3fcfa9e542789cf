// Package report is the shard's side of ReportShard: it reports to the coordinator what the shard has and lacks, and brings
// the coordinator's instructions to the core.
//
// It is one goroutine on the leader-finding client of kit. It never waits for the core: a report is built from the last
// published view and a scan of the inventory in short visits, and the answer becomes an event. A coordinator that is
// gone, hangs or is of another lineage costs nothing but the report (SHARD-2.2, 21.3).
//
// It stores what must survive before it takes effect: the term mark and the group's identity before an answer is
// used, what an instruction changed before its ack leaves (COORD-7.12, SHARD-5.4). It depends on generated code and kit,
// never on the coordinator. Start at Reporter.Run. Tests cite SHARD-21 and COORD-7.2.
package report

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// Limits of the reporter (SHARD-21).
const (
	callTimeout   = 5 * time.Second
	acksMax       = 1024 // oldest dropped: instructions come again
	linksEvery    = 6    // reports between two complete lists of clusters
	violationsMax = 64
	// ackSettle is how long an ack waits for others of the same step before they are reported together.
	ackSettle = 50 * time.Millisecond
)

// Store keeps what must survive a restart.
type Store interface {
	Put(bucket, key string, value []byte) error
}

// Client makes reports; *coordclient.Client is one.
type Client interface {
	Report(ctx context.Context, report *pb.ShardReport) (*pb.ReportAck, error)
	Leader() string
}

// Config is what a Reporter needs.
type Config struct {
	ShardID, Version, Address string
	ProviderAddress           string // sorted, joined by commas
	Epoch                     int64
	Interval                  time.Duration
	Client                    Client
	Gate                      *ingest.Gate
	Loop                      *loop.Loop
	Core                      *core.Core // touched through visits only
	View                      func() *core.Publish
	Store                     Store
	// Stores names the stores behind the providers, once all have answered; nil: unknown.
	Stores    func() (list []string, known bool)
	Log       *slog.Logger
	OnDropped func(acks int) // hears of acks that were dropped at the bound
	OnStale   func()         // hears of an answer below the highest term seen
}

// Reporter reports until it is stopped.
type Reporter struct {
	cfg    Config
	source *loop.Source
	visits *loop.Source
	acked  chan struct{} // an ack waits

	mu         sync.Mutex
	acks       []*pb.InstructAck
	unstored   []word          // what waits for the disk, in order
	given      map[string]bool // machines that were given back, as the disk knows; true: a view has shown it
	violations []string        // machines on which another shard acted
	reported   time.Time       // last answered report
	lastError  string

	cycle    int64
	answered bool // a coordinator has answered in this process
	holdings bool // it asked for them
	sentLink int64
	links    []*pb.ClusterLink // as last reported
	failing  bool
}

// word is a message to the coordinator that is sent once its content is on the disk.
type word struct {
	store []core.Persist
	ack   *pb.InstructAck
	given []string
}

// New returns a reporter that has made no call.
func New(c Config) *Reporter {
	return &Reporter{cfg: c, source: c.Loop.Source("coordinator", 8, false), visits: c.Loop.Source("summary", 4, false), acked: make(chan struct{}, 1),
		given: map[string]bool{}}
}

// Ack takes the core's answer to an instruction. It is called by the loop and never blocks.
func (r *Reporter) Ack(a core.AckInstruction) {
	x := &pb.InstructAck{InstructionId: a.ID, Outcome: pb.InstructAck_Outcome(a.Outcome), Reason: a.Reason, MachineIds: a.Machines}
	if a.Outcome == core.InstructionFailed {
		x.Retryable = &a.Retryable
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unstored = append(r.unstored, word{store: a.Store, ack: x})
	select {
	case r.acked <- struct{}{}:
	default:
	}
}

// Notice takes reports of the core that answer no instruction. It is called by the loop and never blocks.
func (r *Reporter) Notice(n core.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(n.GivenBack) > 0 {
		r.unstored = append(r.unstored, word{store: n.Store, given: n.GivenBack})
	}
	if n.Violated != "" && len(r.violations) < violationsMax {
		r.violations = append(r.violations, n.Violated)
	}
}

// State says when a coordinator last answered (zero: never) and what the last failure was.
func (r *Reporter) State() (answered time.Time, lastError string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reported, r.lastError
}

// Soon makes the next report due: the providers have named their stores. It never blocks.
func (r *Reporter) Soon() {
	select {
	case r.acked <- struct{}{}:
	default:
	}
}

// storesWait is how long the first report waits for the stores of the providers. Without them, one provider under two addresses
// belongs to two shards for a moment (COORD-9.4).
const storesWait = 2 * time.Second

func (r *Reporter) awaitStores(ctx context.Context) {
	if r.cfg.Stores == nil {
		return
	}
	for end := time.Now().Add(storesWait); time.Now().Before(end); {
		if _, known := r.cfg.Stores(); known {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Run reports once the providers have answered, or soon, and then at the interval, with jitter, until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	r.awaitStores(ctx)
	for r.wait(ctx, r.once(ctx)) {
	}
	return nil
}

// wait returns after the interval, or soon after an instruction was carried out: others wait for the answer, the next side of
// a move, the next owner of a domain. While the coordinator does not answer, acks wait for the next attempt.
func (r *Reporter) wait(ctx context.Context, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	acked := r.acked
	if r.failing {
		acked = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-acked:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(ackSettle):
		return true
	}
}

// once makes one report and returns the pause before the next.
func (r *Reporter) once(ctx context.Context) time.Duration {
	r.storeAcks()
	report := r.build(ctx)
	if report == nil {
		return 100 * time.Millisecond // the core has not published yet
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	ack, err := r.cfg.Client.Report(call, report)
	cancel()
	if err != nil {
		r.failed(ctx, err, report)
		if hint, ok := rpc.Detail[*pb.RetryHint](err); ok && hint.AfterMillis > 0 { // spreads shards that would all report at once
			return r.jittered(min(time.Duration(hint.AfterMillis)*time.Millisecond, r.cfg.Interval))
		}
		return r.pause(0)
	}
	r.succeeded(ctx, ack)
	return r.pause(time.Duration(ack.NextReportAfterMs) * time.Millisecond)
}

// pause is the time before the next report: what the coordinator suggested, else the interval; sooner while it has never
// answered (COORD-7.14).
func (r *Reporter) pause(suggested time.Duration) time.Duration {
	switch {
	case !r.answered:
		return time.Second + rand.N(2*time.Second)
	case suggested > 0:
		return r.jittered(min(suggested, 10*r.cfg.Interval))
	}
	return r.jittered(r.cfg.Interval)
}

func (r *Reporter) jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// storeAcks puts on the disk what instructions changed and what was given back; only then may the coordinator hear of it.
// What cannot be stored waits, with everything behind it.
func (r *Reporter) storeAcks() {
	select {
	case <-r.acked: // this report carries it
	default:
	}
	r.mu.Lock()
	waiting := r.unstored
	r.unstored = nil
	r.mu.Unlock()
	for i, w := range waiting {
		for _, p := range w.store {
			if err := r.cfg.Store.Put(p.Bucket, p.Key, p.Value); err != nil {
				r.cfg.Log.Error("an answer to the coordinator is delayed: the change that it reports cannot be stored", "instruction", w.ack.GetInstructionId(), "err", err)
				r.mu.Lock()
				r.unstored = append(waiting[i:len(waiting):len(waiting)], r.unstored...)
				r.mu.Unlock()
				return
			}
		}
		r.mu.Lock()
		if w.ack != nil {
			r.acks = append(r.acks, w.ack)
		}
		for _, id := range w.given {
			r.given[id] = false
		}
		r.mu.Unlock()
	}
}

// failed puts the acks back in front and logs once per change of state (SHARD-21.3).
func (r *Reporter) failed(ctx context.Context, err error, report *pb.ShardReport) {
	if ctx.Err() != nil {
		return
	}
	r.requeue(report)
	if stale := (*coordclient.StaleTermError)(nil); errors.As(err, &stale) {
		r.cfg.OnStale()
	}
	r.mu.Lock()
	r.lastError = err.Error()
	r.mu.Unlock()
	if !r.failing {
		r.failing = true
		r.cfg.Log.Warn("the coordinator does not answer; the shard continues without it", "err", err)
	}
	e := core.CoordinatorReplied{Failed: true, Text: err.Error()}
	if d, ok := rpc.Detail[*pb.ShardDecommissioned](err); ok {
		e.Decommissioned = true
		e.Text = "this shard was removed from the fleet by " + d.Actor + "; it starts no actions until it is readmitted"
	} else if epochDisputed(err) {
		e.EpochDisputed = true
		e.Text = "the coordinator has seen a higher epoch of this shard; it starts no actions until the coordinator accepts this epoch: " + err.Error()
	}
	var lineage *coordclient.LineageError
	if errors.As(err, &lineage) {
		r.cfg.Log.Error("a coordinator of another group answers; it is ignored until the shard is restarted with --forget-coordinator", "err", err)
	}
	r.source.Push(ctx, e)
}

// epochDisputed reports an answer that another process with a higher epoch reported under this id. A coordinator that names no
// reason uses the code for nothing else.
func epochDisputed(err error) bool {
	if connect.CodeOf(err) != connect.CodeAborted {
		return false
	}
	d, ok := rpc.Detail[*pb.RefusedByState](err)
	return !ok || d.Reason == "epoch-regressed"
}

// requeue puts the acks of a report that did not arrive back in front. Beyond the bound the oldest go: their
// instructions come again.
func (r *Reporter) requeue(report *pb.ShardReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(report.OwnershipViolations, r.violations...)
	r.violations = r.violations[:min(len(r.violations), violationsMax)]
	if report.ClustersComplete {
		r.sentLink = 0 // it may not have arrived
	}
	r.acks = append(report.InstructionAcks, r.acks...)
	if n := len(r.acks) - acksMax; n > 0 {
		r.acks = r.acks[n:]
		r.cfg.OnDropped(n)
	}
}

// succeeded brings an answer to the core, its instructions in the order of their numbers (COORD-8.6). The client has stored
// the pin and the term before it returned the answer.
func (r *Reporter) succeeded(ctx context.Context, ack *pb.ReportAck) {
	r.mu.Lock()
	r.reported, r.lastError = time.Now(), ""
	r.mu.Unlock()
	if r.failing {
		r.failing = false
		r.cfg.Log.Info("the coordinator answers again")
	}
	r.answered, r.holdings = true, ack.SendHoldings
	e := core.CoordinatorReplied{Term: ack.CoordinatorTerm, UUID: ack.ClusterUuid, Previous: ack.PreviousUuids, Address: r.cfg.Client.Leader()}
	slices.SortStableFunc(ack.Instructions, func(x, y *pb.CoordinatorInstruction) int {
		return cmp.Compare(x.GetSequenceNumber(), y.GetSequenceNumber())
	})
	for _, x := range ack.Instructions {
		e.Instructions = append(e.Instructions, r.cfg.Gate.Instruction(x))
	}
	r.source.Push(ctx, e)
}

// ProviderAddress is how a set of providers is reported as one.
func ProviderAddress(addrs []string) string { return strings.Join(addrs, ",") }
