package doctor

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
)

// known is what the coordinator has recorded of a shard; nil when there is no coordinator to ask.
type known map[string]*bigfleetv1alpha1.ShardRegistryEntry

// plane asks the leader about the whole: voters, reports, conflicts, what is stuck.
func plane(ctx context.Context, f *fleet.Fleet, r *report, v skew.Versions) known {
	var s *bigfleetv1alpha1.FleetStatus
	err := f.Leader(ctx, "the state of the fleet", func(ctx context.Context, c fleet.Coordinator) error {
		got, err := c.Admin.GetFleetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetFleetStatusRequest{}))
		if err == nil {
			s = got.Msg.GetStatus()
		}
		return err
	})
	if err != nil {
		r.warn("coordinator", "`bigfleet raft status` works without a leader", "the state of the whole fleet cannot be read: %v", err)
		return nil
	}
	if s.GetHealthyVoters() < s.GetVoters() {
		r.fail("coordinator", "`bigfleet raft status` names those that are missing: bring them back, or `bigfleet raft remove-peer ID --reason …` what is gone for good", "its leader hears from %d of %d voters", s.GetHealthyVoters(), s.GetVoters())
	}
	if n := s.GetVoters(); n%2 == 0 && n > 0 {
		r.warn("coordinator", "Add a replica, or `bigfleet raft remove-peer ID` one", "it has %d voters: they tolerate as many failures as %d voters, and each write needs one more answer", n, n-1)
	}
	for _, c := range s.GetConflicts() {
		r.fail("cluster "+c.GetClusterId(), "Configure its operator to dial one shard, or `bigfleet clusters bind "+c.GetClusterId()+" SHARD`", "shards %s and %s both have a session of it", c.GetShardId(), c.GetConflictingShardId())
	}
	if n := s.GetStuckInstructions(); n > 0 {
		r.warn("coordinator", "`bigfleet get instructions` says what the shards answered", "%s to shards were abandoned", output.Count(int(n), "instruction"))
	}
	out := known{}
	for _, e := range s.GetShards() {
		out[e.GetShardId()] = e
		if e.GetState() == bigfleetv1alpha1.ShardState_SHARD_STATE_TOMBSTONED {
			continue
		}
		v.Add("shard "+e.GetShardId(), e.GetShardVersion())
		age := time.Duration(e.GetReportAgeSeconds() * float64(time.Second))
		if age > reportOld && !s.GetRebuilding() {
			r.warn("shard "+e.GetShardId(), "If it runs, check the network from it to the coordinator; if it is gone for good, `bigfleet shards remove "+e.GetShardId()+" --reason …`", "it last reported to the coordinator %s ago", output.Span(age))
		}
	}
	return out
}

// identity compares who answers at a shard's address, and as of when, with what the coordinator has recorded.
func (k known) identity(r *report, s fleet.Shard, st *bigfleetv1alpha1.GetStatusResponse) {
	about := "shard " + s.Label()
	if s.ID != "" && st.GetShardId() != s.ID {
		r.fail(about, "Give each shard an address of its own (--advertise-addr); `bigfleet get shards -o wide` has those that the coordinator knows", "at its address %s answers shard %s", s.Address, st.GetShardId())
		return
	}
	if e := k[st.GetShardId()]; e != nil && e.GetEpoch() > st.GetShardEpoch() {
		r.fail(about, "Two processes have this id: find the other one and stop the one that should not run; never restart both", "the coordinator has heard epoch %d of it, and this process has epoch %d", e.GetEpoch(), st.GetShardEpoch())
	}
}

// versions compares all versions (OPS-10.1).
func versions(r *report, v skew.Versions) {
	got := v.Judge()
	switch {
	case got.Minors > 2:
		r.fail("versions", skew.Fix, "%s: more than two minor versions apart is not supported", got.Message)
	case got.Minors > 1:
		r.warn("versions", skew.Fix, "%s: two minor versions apart; newer features are not used", got.Message)
	case got.Version != "":
		r.ok("versions", "%d processes within one minor version: %s", len(v)-len(got.Unknown), got.Version)
	}
	if got.Version != "" && len(got.Unknown) > 0 {
		r.warn("versions", "Run released builds", "%s cannot be compared", strings.Join(got.Unknown, ", "))
	}
}

// rowsMany is half of what a shard takes of one cluster by default.
const rowsMany = 25_000

// demand looks at what clusters ask for: roll-ups that were not taken, and those that grow too large.
func demand(r *report, c *bigfleetv1alpha1.ClusterView) {
	about := "cluster " + c.GetClusterId()
	switch c.GetLastDisposition() {
	case bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_HELD:
		r.warn(about, "If it really shrinks: `bigfleet rollups accept "+c.GetClusterId()+" --reason …`; otherwise restore its requests", "its roll-up is held; the last accepted one stays in force: %s", c.GetLastRollupReason())
	case bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_REJECTED:
		if c.GetLastRollupReason() == "too_wide" {
			r.fail(about, "Fewer different selectors, affinities and tolerations; `bigfleet history cluster/"+c.GetClusterId()+"` has the figures", "its demand is set aside, and its machines stay: too_wide")
			return
		}
		r.fail(about, "Run compatible versions of the operator and the shard; the reason names the field", "its roll-up is rejected; the last accepted one stays in force: %s", c.GetLastRollupReason())
	}
	if n := c.GetNeeds(); n > rowsMany {
		r.warn(about, "Fewer kinds of Pods (requests, selectors, priorities) make fewer rows", "its roll-up has %d rows; a shard takes 50000 by default", n)
	}
}
