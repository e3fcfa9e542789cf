package shards

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/rebalance"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Config of a ShardRegistry.
type Config struct {
	Group   Group        // required
	Log     *slog.Logger // required
	Metrics *metrics.Set // required
	// SweepEvery is the interval of the rebalancer; 0 switches it off.
	SweepEvery time.Duration
	// LevelMax holds the replicated feature level back.
	LevelMax int32
	// OnReport hears of each report that changed soft state. It must not block.
	OnReport func(shard string)
}

// ShardRegistry is the soft state of one leadership. Safe for concurrent use.
type ShardRegistry struct {
	config    Config
	ctx       context.Context
	opened    time.Time
	interner  *rebalance.Interner
	registrar *registrar

	mu     sync.RWMutex
	shards map[string]*shard

	sweeps     sweeps
	ages       moveAges
	conflictMu sync.Mutex
	conflicts  map[string]string // cluster -> the other shard with a live session
	levelSince time.Time
	unseen     map[string]time.Time
	assigned   []time.Time // automatic assignments of the last minute
	quota      auditQuota
}

// New returns the ShardRegistry of a leadership, which ends with ctx.
func New(ctx context.Context, c Config) *ShardRegistry {
	if c.OnReport == nil {
		c.OnReport = func(string) {}
	}
	return &ShardRegistry{config: c, ctx: ctx, opened: time.Now(), interner: rebalance.NewInterner(), registrar: &registrar{group: c.Group, ctx: ctx},
		shards: map[string]*shard{}, conflicts: map[string]string{}, unseen: map[string]time.Time{}}
}

// shard returns the soft state of a shard, made at its first report.
func (d *ShardRegistry) shard(id string) *shard {
	d.mu.RLock()
	s := d.shards[id]
	d.mu.RUnlock()
	if s != nil {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s = d.shards[id]; s == nil {
		s = newShard(id)
		d.shards[id] = s
	}
	return s
}

// known returns the soft state of a shard that reported, or nil.
func (d *ShardRegistry) known(id string) *shard {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.shards[id]
}

// all lists the soft state of every shard that reported.
func (d *ShardRegistry) all() []*shard {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]*shard, 0, len(d.shards))
	for _, s := range d.shards {
		out = append(out, s)
	}
	return out
}

// forget drops the soft state of shards that were removed. It asks for the state behind the lock: a shard that is in it by
// now may have stored its first report.
func (d *ShardRegistry) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.config.Group.State()
	for id := range d.shards {
		if !fleet.Live(st.Shard(id)) {
			delete(d.shards, id)
			d.config.Metrics.ReportAge.DeleteLabelValues(id)
			d.config.Metrics.Pending.DeleteLabelValues(id)
		}
	}
}

// Rebuilding reports that soft state is not complete yet: empty is not "no demand" (COORD-16.6).
func (d *ShardRegistry) Rebuilding() bool { return time.Since(d.opened) < staleAfter*ReportInterval }

// acked is fleet.Acked for this leadership. A shard without views cannot ack one: an explicit owner acks UnassignDomain; a
// default owner can say nothing, which is alarmed and not waited for (COORD-8.9).
func (d *ShardRegistry) acked(id string, required *pb.Version, domain *pb.Domain) bool {
	s := d.known(id)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.heard:
		return false
	case s.view:
		return s.acked != nil && !fleet.NewerView(required, s.acked)
	case domain != nil && domain.GetOwner() == id:
		return s.released[legacySubject(domain)]
	}
	return true
}

// commitAcked commits what the acks of a shard allow.
func (d *ShardRegistry) commitAcked(ctx context.Context, id string) error {
	ops := d.config.Group.State().AckedOperations(id, d.acked)
	for len(ops) > 0 {
		n := min(len(ops), batchMax)
		if _, err := d.registrar.commit(ctx, ops[:n]...); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// CommitAcked commits what is allowed already, after an admin's order: a shard without views has nothing to ack.
func (d *ShardRegistry) CommitAcked(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if err := d.commitAcked(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// SoftState is what a shard last said, for reads.
type SoftState struct {
	Heard       bool
	Received    time.Time
	Age         time.Duration
	Fresh       bool
	Cycle       int64
	Epoch       int64
	View        *v1.ViewVersion
	Version     string
	Summary     *v1.ShardSummary
	Shortfalls  []*v1.Shortfall
	Supply      []*v1.SupplyBucket
	Links       []*v1.ClusterLink
	Capable     []string
	Provider    string
	Outstanding int
}

// SoftState returns what a shard last said. With full, lists are included.
func (d *ShardRegistry) SoftState(id string, full bool) SoftState {
	s := d.known(id)
	if s == nil {
		return SoftState{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out := SoftState{Heard: s.heard, Received: s.received, Age: now.Sub(s.received), Fresh: s.fresh(now), Cycle: s.cycle, Epoch: s.epoch,
		Version: s.version, Summary: s.summary, Outstanding: len(s.pending)}
	if s.acked != nil {
		out.View = fleet.WireVersion(s.acked)
	} else if s.reported != nil {
		out.View = fleet.WireVersion(s.reported)
	}
	if s.view {
		out.Capable = append(out.Capable, capView+"/1")
	}
	if s.moves {
		out.Capable = append(out.Capable, capMoves+"/1")
	}
	if full {
		out.Shortfalls, out.Supply = d.interner.WireShortfalls(s.shortfalls), d.interner.WireSupply(s.supply)
		for _, id := range sortedKeys(s.links) {
			out.Links = append(out.Links, s.links[id])
		}
	}
	return out
}

// Link returns what a shard says about a cluster, or nil.
func (d *ShardRegistry) Link(shard, cluster string) *v1.ClusterLink {
	s := d.known(shard)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[cluster]
}

// Conflicts returns, by cluster, the shard that has a live session beside the one the cluster is bound to.
func (d *ShardRegistry) Conflicts() map[string]string {
	d.conflictMu.Lock()
	defer d.conflictMu.Unlock()
	out := make(map[string]string, len(d.conflicts))
	for k, v := range d.conflicts {
		out[k] = v
	}
	return out
}

// Holders names the shards of a provider, but for one, that report bound machines of a cluster (COORD-10.6).
func (d *ShardRegistry) Holders(st *fleet.State, cluster, but string) []string {
	return d.holders(st, st.Shard(but).GetProvider(), cluster, but)
}

func (d *ShardRegistry) holders(st *fleet.State, provider, cluster, but string) []string {
	var out []string
	for id := range st.ShardsOf(provider) {
		if id != but && d.Link(id, cluster).GetBoundMachines() > 0 {
			out = append(out, id)
		}
	}
	return out
}

// Pending lists the instructions without a terminal ack, by shard and sequence number.
func (d *ShardRegistry) Pending(only string) []*v1.PendingInstruction {
	st := d.config.Group.State()
	var out []*v1.PendingInstruction
	byID := map[string]*shard{}
	for _, s := range d.all() {
		byID[s.id] = s
	}
	for _, id := range sortedKeys(byID) {
		if only != "" && id != only {
			continue
		}
		s := byID[id]
		s.mu.Lock()
		for _, o := range s.refresh(st, time.Now()) {
			p := &v1.PendingInstruction{ShardId: id, Instruction: s.wire(st, o), SinceUnixNanos: o.since.UnixNano(), Stuck: o.stuck, LastAck: o.last}
			if !o.next.IsZero() {
				p.NextAttemptAtUnixNanos = o.next.UnixNano()
			}
			out = append(out, p)
		}
		s.mu.Unlock()
	}
	return out
}

// Stuck counts the instructions that were given up or are older than a person should leave alone. It renders none of them.
func (d *ShardRegistry) Stuck(older time.Duration) int {
	st, now, n := d.config.Group.State(), time.Now(), 0
	for _, s := range d.all() {
		s.mu.Lock()
		for _, o := range s.refresh(st, now) {
			if o.stuck || now.Sub(o.since) > older {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// Retry makes an instruction due at once, given up or not. It reports whether there is such an instruction.
func (d *ShardRegistry) Retry(id, instruction string, dryRun bool) bool {
	s := d.known(id)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.refresh(d.config.Group.State(), time.Now()) {
		if o.subject == subjectOf(instruction) {
			if !dryRun {
				o.stuck, o.next = false, time.Time{}
			}
			return true
		}
	}
	return false
}

// commit waits for the common entry that ops become part of.
func (d *ShardRegistry) commit(ctx context.Context, ops ...*pb.Operation) error {
	_, err := d.registrar.commit(ctx, ops...)
	return err
}

var _ Group = (*replica.Node)(nil)

// StuckByKind counts the instructions that were given up.
func (d *ShardRegistry) StuckByKind() map[string]int {
	out := map[string]int{}
	for _, s := range d.all() {
		s.mu.Lock()
		for _, o := range s.pending {
			if o.stuck {
				out[o.kind]++
			}
		}
		s.mu.Unlock()
	}
	return out
}
