package fleet

import (
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	// AuditMax is the length of the audit ring (COORD-2).
	AuditMax = 10_000
	// PreviousMax bounds the remembered identities of a group.
	PreviousMax = 16
)

func (a *applier) putMeta(m *pb.Meta) {
	a.s.meta = m
	a.changed(Group, "", "")
}

func (a *applier) initGroup(op *pb.InitGroup) *Refusal {
	meta := a.s.Meta()
	switch {
	case op.GetClusterUuid() == "":
		return invalid("a group needs an identity")
	case meta.GetClusterUuid() == op.GetClusterUuid():
		return nil
	case meta.GetClusterUuid() != "":
		return refused("group-exists", "", "the group is %s already", meta.GetClusterUuid())
	}
	meta = proto.CloneOf(meta)
	meta.ClusterUuid = op.GetClusterUuid()
	meta.FeatureLevel = max(meta.GetFeatureLevel(), op.GetFeatureLevel(), 1)
	a.putMeta(meta)
	return nil
}

// bumpFence raises the fencing term (COORD-6.1.1). It never falls and never wraps.
func (a *applier) bumpFence(op *pb.BumpFence) *Refusal {
	meta := proto.CloneOf(a.s.Meta())
	next := max(meta.GetFencingTerm()+1, op.GetAtLeast(), op.GetRaftTerm())
	if next <= meta.GetFencingTerm() {
		return invalid("the fencing term has reached its largest value")
	}
	meta.FencingTerm = next
	a.putMeta(meta)
	return nil
}

func (a *applier) setFeatureLevel(op *pb.SetFeatureLevel) *Refusal {
	meta := a.s.Meta()
	switch {
	case op.GetLevel() == meta.GetFeatureLevel():
		return nil
	case op.GetLevel() < meta.GetFeatureLevel():
		return refused("level-falls", "", "the feature level is %d and must not decrease to %d", meta.GetFeatureLevel(), op.GetLevel())
	}
	meta = proto.CloneOf(meta)
	meta.FeatureLevel = op.GetLevel()
	a.putMeta(meta)
	return nil
}

func (a *applier) upsertPeer(op *pb.UpsertPeer) *Refusal {
	peer := op.GetPeer()
	if !validID(peer.GetNodeId()) {
		return invalid("a peer needs an id of 1 to 128 letters, digits, dots, dashes or underscores")
	}
	old := a.s.peers.get(peer.GetNodeId())
	if old.GetRemoved() {
		return refused("peer-removed", "readmit it first", "node %q was removed", peer.GetNodeId())
	}
	peer = proto.CloneOf(peer)
	peer.Removed = false
	if !proto.Equal(old, peer) {
		a.putPeer(peer)
	}
	return nil
}

func (a *applier) removePeer(op *pb.RemovePeer) *Refusal {
	old := a.s.peers.get(op.GetNodeId())
	if old == nil {
		if !validID(op.GetNodeId()) {
			return invalid("a peer needs an id")
		}
		old = &pb.Peer{NodeId: op.GetNodeId()}
	}
	if !old.GetRemoved() {
		old = proto.CloneOf(old)
		old.Removed = true
		a.putPeer(old)
	}
	return nil
}

func (a *applier) readmitPeer(op *pb.ReadmitPeer) *Refusal {
	old := a.s.peers.get(op.GetNodeId())
	if old == nil {
		return unknown("peer", op.GetNodeId())
	}
	if old.GetRemoved() {
		a.s.peers.drop(op.GetNodeId())
		a.changed(Peers, op.GetNodeId(), "")
	}
	return nil
}

// DefaultPolicy is the rebalancer's policy of a new group (COORD-2, COORD-12.1).
func DefaultPolicy() *v1.RebalancePolicy {
	return &v1.RebalancePolicy{
		Mode: v1.RebalanceMode_REBALANCE_MODE_ON, MaxTier: v1.MoveTier_MOVE_TIER_QUOTA,
		AgeGatesSeconds: []int64{60, 60, 180}, FlowCooldownSeconds: 600, MachineCooldownSeconds: 3600,
		DonorMargin: 0.10, DonorCap: 0.01, MaxOpenMoves: 32, MaxExceptions: 10_000,
	}
}

// setPolicy stores the policy with zero numbers replaced by their defaults.
func (a *applier) setPolicy(op *pb.SetPolicy) *Refusal {
	want := op.GetPolicy()
	if want == nil || want.GetMode() == v1.RebalanceMode_REBALANCE_MODE_UNSPECIFIED {
		return invalid("a policy needs a mode: on, dry-run or off")
	}
	next, def := proto.CloneOf(want), DefaultPolicy()
	if next.GetMaxTier() == v1.MoveTier_MOVE_TIER_UNSPECIFIED {
		next.MaxTier = def.MaxTier
	}
	gates := slices.Clone(def.AgeGatesSeconds)
	for i, gate := range next.GetAgeGatesSeconds() {
		if i < len(gates) && gate > 0 {
			gates[i] = gate
		}
	}
	next.AgeGatesSeconds = gates
	orDefault(&next.FlowCooldownSeconds, def.FlowCooldownSeconds)
	orDefault(&next.MachineCooldownSeconds, def.MachineCooldownSeconds)
	orDefault(&next.DonorMargin, def.DonorMargin)
	orDefault(&next.DonorCap, def.DonorCap)
	orDefault(&next.MaxOpenMoves, def.MaxOpenMoves)
	orDefault(&next.MaxExceptions, def.MaxExceptions)
	if !proto.Equal(next, a.s.Policy()) {
		a.s.policy = next
		a.changed(Policies, "", "")
	}
	return nil
}

func orDefault[N int32 | int64 | float64](field *N, value N) {
	if !(*field > 0) { // NaN reads as the default too
		*field = value
	}
}

// appendAudit records the call that the rest of the entry carries out, with its result (COORD-16.10).
func (a *applier) appendAudit(op *pb.AppendAudit, out *Outcome) *Refusal {
	result := "ok"
	if a.first >= 0 {
		result = out.Results[a.first].code()
	}
	a.audit(&v1.AuditRecord{Actor: a.actor, Method: op.GetMethod(), RequestJson: op.GetRequestJson(), Result: result, Reason: op.GetReason()})
	return nil
}

// audit appends one record to the ring.
func (a *applier) audit(record *v1.AuditRecord) {
	meta := proto.CloneOf(a.s.Meta())
	meta.AuditSequence++
	a.s.meta = meta
	record.Index, record.AtUnixNanos = a.s.index, a.at
	a.s.audit.put(auditKey(meta.AuditSequence), &pb.Audit{Sequence: meta.AuditSequence, Record: record})
	for a.s.audit.len() > AuditMax {
		oldest, _ := a.s.audit.first()
		a.s.audit.drop(oldest)
	}
	a.changed(AuditRecords, auditKey(meta.AuditSequence), "")
}

// note audits something that happened without a call: a conflict, a merge that had to choose.
func (a *applier) note(method string, details ...string) {
	a.audit(&v1.AuditRecord{Actor: a.actor, Method: method, Result: "ok", Reason: strings.Join(details, " ")})
}

// Noted returns the state with one more audit record, of something that an administrator did to it outside of the log.
func Noted(s *State, at int64, method, reason string) *State {
	a := newApplier(s, s.index, &pb.Envelope{ProposedAtUnixNanos: at})
	a.note(method, reason)
	return a.s
}

// code is the name that the audit ring keeps for a refusal.
func (r *Refusal) code() string {
	switch r.Kind {
	case NotFound:
		return "not_found"
	case OtherOwner:
		return "already_exists"
	case Refused:
		return "aborted"
	case Full:
		return "resource_exhausted"
	}
	return "invalid_argument"
}
