package server

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// slowGauges is how often what costs a walk over files or all rows is measured.
const slowGauges = 10 * time.Second

// RunGauges sets the gauges each second, on every replica, until ctx ends (COORD-18.3). It also keeps the conversation
// with shards going without calls, and removes dead voters.
func (s *Server) RunGauges(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var slow time.Time
	for {
		now := time.Now()
		s.fastGauges()
		if now.Sub(slow) >= slowGauges {
			slow = now
			s.slowGauges(now)
		}
		s.removeDead(ctx, now)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Server) fastGauges() {
	n, m := s.node, s.config.Metrics
	st := n.State()
	m.RaftTerm.Set(float64(n.Term()))
	m.FencingTerm.Set(float64(st.Meta().GetFencingTerm()))
	m.CommitIndex.Set(float64(n.CommitIndex()))
	m.AppliedIndex.Set(float64(n.AppliedIndex()))
	suffrages := map[string]int{"voter": 0, "nonvoter": 0}
	m.PeerLastContact.Reset()
	for _, server := range n.Servers() {
		suffrages[suffrage(server.Suffrage)]++
		if ago, known := n.LastContact(string(server.ID)); known && string(server.ID) != n.NodeID() {
			m.PeerLastContact.WithLabelValues(string(server.ID)).Set(ago.Seconds())
		}
	}
	for name, count := range suffrages {
		m.Peers.WithLabelValues(name).Set(float64(count))
	}
	m.ReportsWaiting.Set(float64(s.admission.waiting.Load()))
	m.Domains.Set(float64(st.DomainCount()))
	m.DomainMoves.Set(float64(st.HandoverCount()))
	m.Exceptions.Set(float64(st.ExceptionCount()))
	states := map[v1.ShardState]int{v1.ShardState_SHARD_STATE_ACTIVE: 0, v1.ShardState_SHARD_STATE_DRAINING: 0, v1.ShardState_SHARD_STATE_TOMBSTONED: 0}
	for sh := range st.Shards() {
		states[sh.GetState()]++
	}
	for state, count := range states {
		m.Shards.WithLabelValues(lower(state.String(), "SHARD_STATE_")).Set(float64(count))
	}
	m.Moves.Reset()
	for move := range st.Moves() {
		m.Moves.WithLabelValues(tierLabel(move.GetTier()), stateLabel(move.GetState())).Inc()
	}
	leadership := n.Leadership()
	if leadership == nil {
		m.IsLeader.Set(0)
		m.ReportAge.Reset()
		m.Pending.Reset()
		m.Stuck.Reset()
		m.Conflicts.Set(0)
		m.LegacyProviders.Set(0)
		return
	}
	m.IsLeader.Set(1)
	s.leaderGauges(st, s.registry(leadership))
}

// leaderGauges come from what shards said, which only the leader knows.
func (s *Server) leaderGauges(st *fleet.State, d *shards.ShardRegistry) {
	m := s.config.Metrics
	m.Conflicts.Set(float64(len(d.Conflicts())))
	legacy := map[string]bool{}
	for sh := range st.Shards() {
		soft := d.SoftState(sh.GetShardId(), false)
		if !fleet.Live(sh) || !soft.Heard {
			continue
		}
		m.ReportAge.WithLabelValues(sh.GetShardId()).Set(soft.Age.Seconds())
		m.Pending.WithLabelValues(sh.GetShardId()).Set(float64(soft.Outstanding))
		if len(soft.Capable) == 0 && sharedProvider(st, sh.GetProvider()) {
			legacy[sh.GetProvider()] = true
		}
	}
	m.LegacyProviders.Set(float64(len(legacy)))
}

func sharedProvider(st *fleet.State, provider string) bool {
	n := 0
	for range st.ShardsOf(provider) {
		n++
	}
	return n > 1
}

func (s *Server) slowGauges(now time.Time) {
	n, m := s.node, s.config.Metrics
	m.DiskBytes.Set(float64(n.DiskBytes()))
	if newest := n.NewestSnapshot(); newest != nil {
		m.SnapshotBytes.Set(float64(newest.Size))
		if at := snapshotTime(newest.ID); !at.IsZero() {
			m.SnapshotAge.Set(now.Sub(at).Seconds())
		}
	}
	if leadership := n.Leadership(); leadership != nil {
		m.Stuck.Reset()
		for kind, count := range s.registry(leadership).StuckByKind() {
			m.Stuck.WithLabelValues(kind).Set(float64(count))
		}
	}
}

// removeDead takes voters out that have not answered for long, while a quorum of reachable voters stays and the group
// does not become smaller than it shall be (COORD-13.14).
func (s *Server) removeDead(ctx context.Context, now time.Time) {
	if s.config.DeadPeerAfter <= 0 {
		return
	}
	leadership := s.node.Leadership()
	if leadership == nil || now.Sub(leadership.Opened) < s.config.DeadPeerAfter {
		return
	}
	voters := 0
	var dead []string
	for _, server := range s.node.Servers() {
		if server.Suffrage != raft.Voter {
			continue
		}
		voters++
		if ago, known := s.node.LastContact(string(server.ID)); string(server.ID) != s.node.NodeID() && (!known || ago >= s.config.DeadPeerAfter) {
			dead = append(dead, string(server.ID))
		}
	}
	for _, id := range dead {
		if voters-1 < s.config.Expect {
			return
		}
		if err := s.node.Remove(ctx, id, false, deadPeerAudit(id)); err != nil {
			s.config.Log.Warn("a dead voter could not be removed", "node", id, "err", err)
			return
		}
		s.config.Log.Warn("a voter that has not answered for long was removed from the group", "node", id, "after", s.config.DeadPeerAfter.String())
		voters--
	}
}
