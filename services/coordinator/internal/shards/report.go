package shards

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Decommissioned is the answer to a shard that was removed (COORD-7.9).
type Decommissioned struct{ Row *pb.Shard }

func (e *Decommissioned) Error() string { return "shard " + e.Row.GetShardId() + " was removed" }

// errNotRegistered means that a registration did not get through. The shard reports again.
var errNotRegistered = errors.New("the shard could not be registered yet")

// localProvider is the provider of a shard that simulates its own.
func localProvider(id string) string { return "in-process:" + id }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Report takes one report and answers it: the steps of COORD-7.1 from the third on. Identity was checked before.
func (d *ShardRegistry) Report(ctx context.Context, r *v1.ShardReport) (*v1.ReportAck, error) {
	st := d.config.Group.State()
	if err := d.admit(ctx, st, r); err != nil {
		return nil, err
	}
	if err := d.register(ctx, d.shard(r.GetShardId()), r); err != nil {
		return nil, err
	}
	s := d.shard(r.GetShardId()) // the one from before the registration may have been forgotten meanwhile
	if err := d.joinStores(ctx, s, r); err != nil {
		return nil, err
	}
	ops := d.take(d.config.Group.State(), s, r)
	ops = append(ops, d.newBindings(d.config.Group.State(), s)...)
	if len(ops) > 0 {
		if err := d.commit(ctx, ops...); err != nil {
			return nil, err // the shard keeps its acks and sends them again
		}
	}
	if err := d.commitAcked(ctx, s.id); err != nil {
		return nil, err
	}
	return d.reply(s), nil
}

// admit holds the checks against the registry and the group (COORD-7.5, 7.9, 6.1.3).
func (d *ShardRegistry) admit(ctx context.Context, st *fleet.State, r *v1.ShardReport) error {
	row := st.Shard(r.GetShardId())
	if row != nil && !fleet.Live(row) {
		return &Decommissioned{row}
	}
	if row != nil && r.GetShardEpoch() < row.GetEpoch() {
		d.config.Metrics.EpochRegressed.Inc()
		d.config.Log.Error("a shard reports an old epoch: two processes with one id, or a lost disk", "shard", r.GetShardId(),
			"epoch", r.GetShardEpoch(), "recorded", row.GetEpoch())
		return &fleet.Refusal{Kind: fleet.Refused, Reason: "epoch-regressed", Say: sprintf("shard %q reports epoch %d and epoch %d was seen before",
			r.GetShardId(), r.GetShardEpoch(), row.GetEpoch()), Hint: "stop the other process with this id, or reset the epoch if there is none"}
	}
	meta := st.Meta()
	if uuid := r.GetClusterUuid(); uuid != "" && uuid != meta.GetClusterUuid() && !slices.Contains(meta.GetPreviousUuids(), uuid) {
		return &fleet.Refusal{Kind: fleet.Refused, Reason: "other-group", Say: sprintf("shard %q belongs to group %s and this is group %s",
			r.GetShardId(), uuid, meta.GetClusterUuid()), Hint: "point it at its own coordinator, or make it forget the old one"}
	}
	switch seen := r.GetObservedTerm(); {
	case seen <= meta.GetFencingTerm():
		return nil
	case seen-meta.GetFencingTerm() > termJumpMax:
		d.config.Metrics.TermJumps.Inc()
		d.config.Log.Error("a shard has seen an implausible term", "shard", r.GetShardId(), "observed", seen, "term", meta.GetFencingTerm())
		return &fleet.Refusal{Kind: fleet.Invalid, Reason: "term-jump", Say: sprintf("term %d is implausibly far above %d", seen, meta.GetFencingTerm()),
			Hint: "find out which coordinator the shard listened to"}
	default:
		return d.commit(ctx, &pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{AtLeast: seen + 1}}})
	}
}

// register commits what the registry does not say yet: a new shard, a new epoch, another address or provider.
func (d *ShardRegistry) register(ctx context.Context, s *shard, r *v1.ShardReport) error {
	row := d.config.Group.State().Shard(s.id)
	provider, reported := "", r.GetSummary() != nil
	if reported {
		if provider = r.GetSummary().GetProviderAddress(); provider == "" {
			provider = localProvider(s.id)
		}
	}
	if row == nil {
		ops := []*pb.Operation{{Kind: &pb.Operation_AddShard{AddShard: &pb.AddShard{
			ShardId: s.id, Address: r.GetShardAddress(), ProviderAddress: provider, Epoch: r.GetShardEpoch()}}}}
		results, err := d.registrar.commit(ctx, append(ops, d.firstBindings(r, provider)...)...)
		switch {
		case err != nil:
			return err
		case results[0] != nil && results[0].Kind == fleet.Invalid:
			return results[0]
		case results[0] != nil && !fleet.Live(d.config.Group.State().Shard(s.id)):
			return errNotRegistered
		}
		return nil
	}
	op := &pb.UpdateShard{ShardId: s.id}
	if r.GetShardEpoch() > row.GetEpoch() {
		op.Epoch = proto.Int64(r.GetShardEpoch())
	}
	if r.GetShardAddress() != row.GetAddress() && r.GetShardAddress() != "" {
		op.Address = proto.String(r.GetShardAddress())
	}
	if reported && provider != row.GetProviderAddress() {
		op.ProviderAddress = proto.String(provider)
	}
	if (op.Address != nil || op.ProviderAddress != nil) && !d.mayMove(s, row, r) {
		op.Address, op.ProviderAddress = nil, nil
	}
	if op.Epoch == nil && op.Address == nil && op.ProviderAddress == nil {
		return nil
	}
	results, err := d.registrar.commit(ctx, &pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: op}})
	if err == nil && results[0] != nil {
		return results[0]
	}
	return err
}

// mayMove allows one change of address or provider in a while; two processes with one id would make it flap (COORD-7.3).
func (d *ShardRegistry) mayMove(s *shard, row *pb.Shard, r *v1.ShardReport) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.addressAt.IsZero() && now.Sub(s.addressAt) < addressEvery {
		d.config.Metrics.AddressFlaps.Inc()
		d.config.Log.Warn("a shard's address or provider changes too often", "shard", s.id, "recorded", row.GetAddress(), "reported", r.GetShardAddress(),
			"recorded-provider", row.GetProviderAddress(), "reported-provider", r.GetSummary().GetProviderAddress())
		return false
	}
	s.addressAt = now
	return true
}

// take stores the report if it is newer, reads its acks in any case, and returns what has to be committed.
func (d *ShardRegistry) take(st *fleet.State, s *shard, r *v1.ShardReport) []*pb.Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if row := st.Shard(s.id); s.heard && s.epoch > row.GetEpoch() && r.GetShardEpoch() >= row.GetEpoch() {
		s.heard = false // an admin accepted that the epoch went back
	}
	result := "stale"
	var ops []*pb.Operation
	if s.newer(r) {
		result = "stored"
		shortfalls, buckets := s.store(r, d.interner, now)
		d.config.Metrics.ReportSurplus.WithLabelValues("shortfalls").Add(float64(shortfalls))
		d.config.Metrics.ReportSurplus.WithLabelValues("buckets").Add(float64(buckets))
		ops = append(ops, d.demandGone(st, s)...)
		ops = append(ops, d.returned(st, s, r.GetReturnedExceptions())...)
		ops = append(ops, d.violations(s, r.GetOwnershipViolations())...)
		d.config.OnReport(s.id)
	}
	d.config.Metrics.Reports.WithLabelValues(result).Inc()
	ops = append(ops, d.takeAcks(st, s, r.GetInstructionAcks(), now)...)
	if r.GetHoldings() != nil && !st.Merged(s.id) {
		ops = append(ops, &pb.Operation{Kind: &pb.Operation_MergeHoldings{MergeHoldings: &pb.MergeHoldings{
			ShardId: s.id, View: fleet.StoredVersion(r.GetViewVersion()), Holdings: r.GetHoldings()}}})
	}
	return ops
}

// returned ends the exceptions that their holder gave back (COORD-9.7). It names them until a view comes without them, and
// only its newest report counts: the machine of an older one may have moved here again.
func (d *ShardRegistry) returned(st *fleet.State, s *shard, ids []string) []*pb.Operation {
	var ops []*pb.Operation
	for _, id := range ids {
		if e := st.Exception(st.Shard(s.id).GetProvider(), id); e.GetOwner() == s.id && len(ops) < batchMax {
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_DropException{DropException: &pb.DropException{Provider: e.GetProvider(), MachineId: id, Owner: s.id}}})
		}
	}
	return ops
}

// firstBindings binds the clusters of an unknown shard in the entry that registers it, so that its report waits for one
// commit and not for two. Whether they were bound is looked at again behind it.
func (d *ShardRegistry) firstBindings(r *v1.ShardReport, address string) []*pb.Operation {
	st := d.config.Group.State()
	provider, known := st.ProviderOf(address)
	if !known {
		provider = address
	}
	var ops []*pb.Operation
	for _, c := range r.GetClusters() {
		if c.GetLiveSession() && st.Cluster(c.GetClusterId()).GetShardId() == "" && len(ops) < batchMax-1 {
			ops = append(ops, bindFromReport(c.GetClusterId(), r.GetShardId(), d.holders(st, provider, c.GetClusterId(), r.GetShardId())))
		}
	}
	return ops
}

func bindFromReport(cluster, shard string, holders []string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{
		ClusterId: cluster, ShardId: shard, Source: v1.ClusterBinding_SOURCE_REPORT, Holders: holders}}}
}

// violations logs and audits machines on which two shards acted (COORD-12.19).
func (d *ShardRegistry) violations(s *shard, ids []string) []*pb.Operation {
	var ops []*pb.Operation
	for _, id := range ids[:min(len(ids), violationsMax)] {
		d.config.Log.Error("another process acted on a machine that a move gave to a shard", "shard", s.id, "machine", id)
		ops = append(ops, d.audited(s.id, "ownership-violation",
			sprintf("the provider refused shard %s to configure machine %s, which a move gave to it", s.id, id))...)
	}
	return ops
}

// newBindings binds unbound clusters of live sessions (COORD-10.3). Shards that report machines of them have to
// let go first, as with a rebind (COORD-10.6). Called without a lock: it looks at other shards.
func (d *ShardRegistry) newBindings(st *fleet.State, s *shard) []*pb.Operation {
	var free []string
	s.mu.Lock()
	for id := range s.liveSince {
		if st.Cluster(id).GetShardId() == "" {
			free = append(free, id)
		}
	}
	s.mu.Unlock()
	slices.Sort(free)
	var ops []*pb.Operation
	for _, id := range free[:min(len(free), batchMax)] {
		ops = append(ops, bindFromReport(id, s.id, d.Holders(st, id, s.id)))
	}
	return ops
}

// demandGone takes moves back whose shortfall is gone (COORD-12.18). Called with the recipient locked, once a report.
func (d *ShardRegistry) demandGone(st *fleet.State, s *shard) []*pb.Operation {
	var ops []*pb.Operation
	open := map[string]bool{}
	for m := range st.OpenMoves() {
		if m.GetTo() != s.id || m.GetOrphan() || m.GetState() != v1.Move_STATE_PLANNED && m.GetState() != v1.Move_STATE_RESERVED {
			continue
		}
		open[m.GetMoveId()] = true
		s.missing[m.GetMoveId()]++
		for _, f := range s.shortfalls {
			if f.Fingerprint == m.GetFingerprint() {
				s.missing[m.GetMoveId()] = 0
			}
		}
		if s.missing[m.GetMoveId()] < goneReports {
			continue
		}
		next := v1.Move_STATE_CANCELLING
		if m.GetState() == v1.Move_STATE_RESERVED {
			next = v1.Move_STATE_WITHDRAWING
		}
		ops = append(ops, advanceMove(m, next, nil, "the shortfall is gone"))
	}
	for id := range s.missing {
		if !open[id] {
			delete(s.missing, id)
		}
	}
	return ops
}

// reply is the answer (COORD-7.8).
func (d *ShardRegistry) reply(s *shard) *v1.ReportAck {
	st := d.config.Group.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := st.Meta()
	out := &v1.ReportAck{CoordinatorTerm: meta.GetFencingTerm(), Acknowledged: true, ClusterUuid: meta.GetClusterUuid(), PreviousUuids: meta.GetPreviousUuids(),
		SendHoldings: s.view && !st.Merged(s.id), Capabilities: []string{capView + "/1", capMoves + "/1"}}
	fresh := false
	out.Instructions, fresh = s.instructions(st, time.Now())
	if fresh || out.SendHoldings || d.moving(st, s.id, time.Now()) {
		out.NextReportAfterMs = ackedSoon.Milliseconds()
	}
	for _, i := range out.Instructions {
		if o := s.pending[subjectOf(i.GetInstructionId())]; o != nil {
			d.config.Metrics.Sent.WithLabelValues(o.kind).Inc()
		}
	}
	return out
}

// moving reports whether a shard is a side of a move that continues: its next step may be for this shard. A move that stood
// still for long is waited for at the shard's own interval.
func (d *ShardRegistry) moving(st *fleet.State, id string, now time.Time) bool {
	for m := range st.OpenMoves() {
		if (m.GetFrom() == id || m.GetTo() == id) && d.ages.of(m, now) < movingFor {
			return true
		}
	}
	return false
}
