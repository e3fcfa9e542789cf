package shards

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/rebalance"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// sweeps remembers what the rebalancer did last, and what it would do in dry run.
type sweeps struct {
	mu       sync.Mutex
	last     time.Time
	proposed []*v1.Move
	waiting  []rebalance.Waiting // since the last sweep
}

// LastSweep is when the rebalancer last looked at the fleet, or the zero time.
func (d *ShardRegistry) LastSweep() time.Time {
	d.sweeps.mu.Lock()
	defer d.sweeps.mu.Unlock()
	return d.sweeps.last
}

// Waiting lists the shortfalls that the last sweep could not serve yet.
func (d *ShardRegistry) Waiting() (out []*v1.WaitingShortfall) {
	d.sweeps.mu.Lock()
	defer d.sweeps.mu.Unlock()
	for _, w := range d.sweeps.waiting {
		out = append(out, &v1.WaitingShortfall{ShardId: w.To, Fingerprint: w.Shortfall.Fingerprint, Priority: w.Shortfall.Priority, AgeSeconds: w.Shortfall.AgeSeconds, Donors: w.Donors})
	}
	return out
}

// Proposed lists what dry runs would have moved, newest first.
func (d *ShardRegistry) Proposed() []*v1.Move {
	d.sweeps.mu.Lock()
	defer d.sweeps.mu.Unlock()
	out := make([]*v1.Move, 0, len(d.sweeps.proposed))
	for i := len(d.sweeps.proposed) - 1; i >= 0; i-- {
		out = append(out, d.sweeps.proposed[i])
	}
	return out
}

// sweep runs the rebalancer once (COORD-12.1). Off cancels what has not left the plan (COORD-12.2).
func (d *ShardRegistry) sweep(now time.Time) {
	st := d.config.Group.State()
	mode := st.Policy().GetMode()
	if mode == v1.RebalanceMode_REBALANCE_MODE_OFF || mode == v1.RebalanceMode_REBALANCE_MODE_UNSPECIFIED {
		d.sweeps.mu.Lock()
		d.sweeps.waiting = nil
		d.sweeps.mu.Unlock()
		d.cancelPlanned(st)
		return
	}
	if st.Merging() {
		return
	}
	start := time.Now()
	proposals, waiting := rebalance.Sweep(d.input(st, now))
	d.config.Metrics.Sweep.Observe(time.Since(start).Seconds())
	d.sweeps.mu.Lock()
	d.sweeps.last, d.sweeps.waiting = now, waiting
	d.sweeps.mu.Unlock()
	if mode == v1.RebalanceMode_REBALANCE_MODE_DRY_RUN {
		d.note(proposals, now)
		return
	}
	var ops []*pb.Operation
	for _, p := range proposals {
		m := moveFrom(st, p)
		d.config.Log.Info("a move is planned", "move", m.GetMoveId(), "shard", p.To, "from", p.From, "reason", p.Reason)
		ops = append(ops, &pb.Operation{Kind: &pb.Operation_CreateMove{CreateMove: &pb.CreateMove{Move: m}}})
	}
	d.commitSweep(ops)
}

func (d *ShardRegistry) commitSweep(ops []*pb.Operation) {
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	defer cancel()
	if err := d.commit(ctx, ops...); err != nil && d.ctx.Err() == nil {
		d.config.Log.Warn("moves were not committed", "err", err)
	}
}

func (d *ShardRegistry) cancelPlanned(st *fleet.State) {
	var ops []*pb.Operation
	for m := range st.OpenMoves() {
		if m.GetState() == v1.Move_STATE_PLANNED {
			ops = append(ops, advanceMove(m, v1.Move_STATE_CANCELLING, nil, "the rebalancer was switched off"))
		}
	}
	d.commitSweep(ops)
}

// input is the fleet as the rebalancer sees it.
func (d *ShardRegistry) input(st *fleet.State, now time.Time) rebalance.Input {
	in := rebalance.Input{Policy: st.Policy(), Room: int64(st.Policy().GetMaxExceptions()) - int64(st.ExceptionCount()),
		Slice: func(provider, region, shard string) (int32, bool) { return sliceTarget(st, provider, region, shard) }}
	for sh := range st.Shards() {
		s := d.known(sh.GetShardId())
		if s == nil || !fleet.Live(sh) {
			continue
		}
		s.mu.Lock()
		in.Shards = append(in.Shards, rebalance.Shard{ID: s.id, Provider: sh.GetProvider(), Draining: sh.GetState() == v1.ShardState_SHARD_STATE_DRAINING,
			Fresh: s.fresh(now), Moves: s.moves, Quarantined: s.quarantined(), EpochChanged: !s.restart.IsZero() && now.Sub(s.restart) < epochStable,
			Machines: s.summary.GetTotalMachines(), Supply: s.supply, Shortfalls: s.shortfalls})
		s.mu.Unlock()
	}
	for m := range st.Moves() {
		age := int64(d.ages.of(m, now) / time.Second)
		f := rebalance.Flow{From: m.GetFrom(), To: m.GetTo(), Fingerprint: m.GetFingerprint(), Open: fleet.Open(m), Aborted: m.GetState() == v1.Move_STATE_ABORTED, AgeSeconds: age,
			Kind: rebalance.Kind{InstanceType: m.GetSelector().GetInstanceType(), Zone: m.GetSelector().GetZone(), CapacityType: m.GetSelector().GetCapacityType()}}
		if age < st.Policy().GetMachineCooldownSeconds() && (m.GetState() == v1.Move_STATE_DONE || m.GetState() == v1.Move_STATE_ADOPTED) {
			f.Cooling = int32(len(m.GetMachineIds()))
		}
		if f.Open {
			in.Room -= int64(m.GetWanted())
		}
		in.Flows = append(in.Flows, f)
	}
	return in
}

func sliceTarget(st *fleet.State, provider, region, shard string) (int32, bool) {
	q := st.Quota(provider, regionOf(st, provider, region))
	if q == nil {
		return 0, false
	}
	for _, sl := range q.GetSlices() {
		if sl.GetShardId() == shard {
			return sl.GetTarget(), true
		}
	}
	return 0, true
}

// regionOf is a bucket's region, else its provider's (COORD-11.3).
func regionOf(st *fleet.State, provider, region string) string {
	if region == "" {
		return st.Provider(provider).GetRegion()
	}
	return region
}

// moveFrom makes the record of a proposal.
func moveFrom(st *fleet.State, p rebalance.Proposal) *pb.Move {
	return &pb.Move{MoveId: rand.Text(), Tier: p.Tier, From: p.From, To: p.To, State: v1.Move_STATE_PLANNED, Provider: p.Provider, Wanted: p.Wanted,
		Selector: &pb.Selector{InstanceType: p.Bucket.Kind.InstanceType, Zone: p.Bucket.Kind.Zone, CapacityType: p.Bucket.Kind.CapacityType,
			Requirements: p.Shortfall.Requirements.Wire, MinUnit: p.Shortfall.MinUnit.Wire},
		Fingerprint: p.Shortfall.Fingerprint, Priority: p.Shortfall.Priority, InterruptionBucket: p.Shortfall.Bucket,
		Region: regionOf(st, p.Provider, p.Bucket.Kind.Region), Reason: p.Reason, Donors: p.Donors}
}

// note keeps what a dry run would have done.
func (d *ShardRegistry) note(proposals []rebalance.Proposal, now time.Time) {
	d.sweeps.mu.Lock()
	defer d.sweeps.mu.Unlock()
	for _, p := range proposals {
		d.sweeps.proposed = append(d.sweeps.proposed, &v1.Move{MoveId: rand.Text(), Tier: p.Tier, FromShardId: p.From, ToShardId: p.To,
			State: v1.Move_STATE_PROPOSED, Wanted: p.Wanted, Fingerprint: p.Shortfall.Fingerprint, Reason: p.Reason, Donors: p.Donors,
			StartedAtUnixNanos: now.UnixNano(), UpdatedAtUnixNanos: now.UnixNano()})
	}
	if n := len(d.sweeps.proposed); n > proposalsKept {
		d.sweeps.proposed = append([]*v1.Move(nil), d.sweeps.proposed[n-proposalsKept:]...)
	}
}
