package fleet

import (
	"fmt"
	"maps"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// Format is the version of the log entry that this binary writes and the newest it reads.
	Format = 1
	// Level is the highest feature level of this binary: every operation it knows was brought by this level or an
	// older one.
	Level = 1
	// OperationsMax bounds one entry (COORD-4.8).
	OperationsMax = 256
)

// Change names one row that an entry changed, for those who watch.
type Change struct {
	Table Table
	// Key of the row: an id, or two parts for Domains (key, value), Quotas and Exceptions (provider, and the rest).
	Key, Rest string
}

// Table names a table.
type Table uint8

// The tables.
const (
	Peers Table = iota + 1
	Shards
	Clusters
	Domains
	Providers
	Quotas
	Exceptions
	Moves
	Policies
	AuditRecords
	Group
)

// Outcome is what one entry did.
type Outcome struct {
	// Results has one element for each operation; nil is success.
	Results []*Refusal
	// Changes names the rows that changed, in order.
	Changes []Change
}

// Err returns the first refusal of an entry.
func (o *Outcome) Err() *Refusal {
	for _, r := range o.Results {
		if r != nil {
			return r
		}
	}
	return nil
}

// Apply applies the entry at a log index and returns the next state. Equal inputs give equal outputs.
//
// The error says that this binary does not understand the entry (COORD-4.4). The replica must stop before it applies
// anything later; the state is unchanged. Whatever else is wrong with an entry is a Refusal of one operation.
func Apply(s *State, index uint64, e *pb.Envelope) (*State, *Outcome, error) {
	if err := understood(e); err != nil {
		return s, nil, fmt.Errorf("log entry %d: %w", index, err)
	}
	a := newApplier(s, index, e)
	out := &Outcome{Results: make([]*Refusal, 0, len(e.GetOperations()))}
	for _, op := range e.GetOperations() {
		a.first = slices.IndexFunc(out.Results, func(r *Refusal) bool { return r != nil })
		refusal := a.operation(op, out)
		out.Results = append(out.Results, refusal)
		if refusal != nil && e.GetAtomic() {
			for len(out.Results) < len(e.GetOperations()) {
				out.Results = append(out.Results, refused("atomic", "", "an earlier operation of the same entry was refused"))
			}
			return abandoned(s, index), out, nil
		}
	}
	a.bumpViews()
	out.Changes = a.changes
	return a.s, out, nil
}

// abandoned is the state behind an atomic entry that was refused: only the index moves on.
func abandoned(s *State, index uint64) *State {
	next := *s
	next.index = index
	return &next
}

// understood checks format, level and kinds before anything is applied.
func understood(e *pb.Envelope) error {
	if e.GetFormat() != Format {
		return fmt.Errorf("it has format %d and this binary reads format %d: start a newer version of the coordinator", e.GetFormat(), Format)
	}
	if e.GetLevel() > Level {
		return fmt.Errorf("it needs feature level %d and this binary has %d: start a newer version of the coordinator", e.GetLevel(), Level)
	}
	for i, op := range e.GetOperations() {
		if op.GetKind() == nil {
			return fmt.Errorf("operation %d is of a kind this binary does not know: start a newer version of the coordinator", i)
		}
	}
	return nil
}

// applier builds the next state from a copy of the old one.
type applier struct {
	s       *State
	at      int64
	actor   string
	version *pb.Version // of what this entry changes
	touched map[string]struct{}
	changes []Change
	first   int // position of the first refusal so far, or -1
}

func newApplier(s *State, index uint64, e *pb.Envelope) *applier {
	next := *s
	next.index = index
	return &applier{
		s: &next, at: e.GetProposedAtUnixNanos(), actor: e.GetActor(), touched: map[string]struct{}{}, first: -1,
		version: &pb.Version{Term: s.Meta().GetFencingTerm(), Index: index},
	}
}

// touch notes that a shard's view says something else than before.
func (a *applier) touch(shards ...string) {
	for _, id := range shards {
		if id != "" {
			a.touched[id] = struct{}{}
		}
	}
}

// touchProvider touches every shard of a provider.
func (a *applier) touchProvider(name string) {
	if name == "" {
		return
	}
	for id := range a.s.ShardsOf(name) {
		a.touch(id)
	}
}

// bumpViews gives each touched shard the version of this entry (COORD-9.2). The fencing term may have risen in the
// same entry, and a version must not look older than one that was sent under the old term.
func (a *applier) bumpViews() {
	a.version.Term = a.s.Meta().GetFencingTerm()
	for _, id := range slices.Sorted(maps.Keys(a.touched)) {
		if sh := a.s.shards.get(id); Live(sh) {
			sh = proto.CloneOf(sh)
			sh.View = a.version
			a.putShard(sh)
		}
	}
}

func (a *applier) changed(t Table, key, rest string) {
	c := Change{Table: t, Key: key, Rest: rest}
	if n := len(a.changes); n > 0 && a.changes[n-1] == c {
		return
	}
	a.changes = append(a.changes, c)
}

// operation applies one operation. A refusal leaves the state as it was.
func (a *applier) operation(op *pb.Operation, out *Outcome) *Refusal {
	switch k := op.GetKind().(type) {
	case *pb.Operation_InitGroup:
		return a.initGroup(k.InitGroup)
	case *pb.Operation_BumpFence:
		return a.bumpFence(k.BumpFence)
	case *pb.Operation_SetFeatureLevel:
		return a.setFeatureLevel(k.SetFeatureLevel)
	case *pb.Operation_UpsertPeer:
		return a.upsertPeer(k.UpsertPeer)
	case *pb.Operation_RemovePeer:
		return a.removePeer(k.RemovePeer)
	case *pb.Operation_ReadmitPeer:
		return a.readmitPeer(k.ReadmitPeer)
	case *pb.Operation_SetPolicy:
		return a.setPolicy(k.SetPolicy)
	case *pb.Operation_AppendAudit:
		return a.appendAudit(k.AppendAudit, out)
	case *pb.Operation_MergeHoldings:
		return a.mergeHoldings(k.MergeHoldings)
	case *pb.Operation_FinishMerge:
		return a.finishMerge()
	default:
		return a.fleetOperation(op)
	}
}

// fleetOperation applies the operations about shards and what they own.
func (a *applier) fleetOperation(op *pb.Operation) *Refusal {
	switch k := op.GetKind().(type) {
	case *pb.Operation_AddShard:
		return a.addShard(k.AddShard)
	case *pb.Operation_UpdateShard:
		return a.updateShard(k.UpdateShard)
	case *pb.Operation_RemoveShard:
		return a.removeShard(k.RemoveShard)
	case *pb.Operation_ReadmitShard:
		return a.readmitShard(k.ReadmitShard)
	case *pb.Operation_BindCluster:
		return a.bindCluster(k.BindCluster)
	case *pb.Operation_UnbindCluster:
		return a.unbindCluster(k.UnbindCluster)
	case *pb.Operation_ReleaseCluster:
		return a.releaseCluster(k.ReleaseCluster)
	case *pb.Operation_FinishRelease:
		return a.finishRelease(k.FinishRelease)
	case *pb.Operation_MarkCluster:
		return a.markCluster(k.MarkCluster)
	case *pb.Operation_AssignDomain:
		return a.assignDomain(k.AssignDomain)
	case *pb.Operation_MoveDomain:
		return a.moveDomain(k.MoveDomain)
	case *pb.Operation_FinishDomainMove:
		return a.finishDomainMove(k.FinishDomainMove)
	case *pb.Operation_UnassignDomain:
		return a.unassignDomain(k.UnassignDomain)
	case *pb.Operation_UpsertProvider:
		return a.upsertProvider(k.UpsertProvider)
	case *pb.Operation_RemoveProvider:
		return a.removeProvider(k.RemoveProvider)
	case *pb.Operation_FinishDefaultOwner:
		return a.finishDefaultOwner(k.FinishDefaultOwner)
	default:
		return a.supplyOperation(op)
	}
}

// supplyOperation applies the operations about quotas, exceptions and moves.
func (a *applier) supplyOperation(op *pb.Operation) *Refusal {
	switch k := op.GetKind().(type) {
	case *pb.Operation_SetQuota:
		return a.setQuota(k.SetQuota)
	case *pb.Operation_DeleteQuota:
		return a.deleteQuota(k.DeleteQuota)
	case *pb.Operation_ShiftQuota:
		return a.shiftQuota(k.ShiftQuota)
	case *pb.Operation_SettleQuota:
		return a.settleQuota(k.SettleQuota)
	case *pb.Operation_PutException:
		return a.putExceptionOp(k.PutException)
	case *pb.Operation_DropException:
		return a.dropException(k.DropException)
	case *pb.Operation_CreateMove:
		return a.createMove(k.CreateMove)
	case *pb.Operation_AdvanceMove:
		return a.advanceMove(k.AdvanceMove)
	case *pb.Operation_PurgeMoves:
		return a.purgeMoves(k.PurgeMoves)
	}
	return invalid("an operation of kind %T has no effect", op.GetKind())
}

// liveShard returns a shard that may own something.
func (a *applier) liveShard(id string) (*pb.Shard, *Refusal) {
	sh := a.s.shards.get(id)
	if !Live(sh) {
		return nil, unknown("shard", id)
	}
	return sh, nil
}

// NewerView reports whether version x is newer than y (COORD-9.2). A nil version is older than all.
func NewerView(x, y *pb.Version) bool {
	if x.GetTerm() != y.GetTerm() {
		return x.GetTerm() > y.GetTerm()
	}
	return x.GetIndex() > y.GetIndex()
}

// SameView reports whether two versions are equal.
func SameView(x, y *pb.Version) bool {
	return x.GetTerm() == y.GetTerm() && x.GetIndex() == y.GetIndex()
}

// LevelOf is the feature level that an entry of these operations needs. Every kind so far came with the first level; a
// kind that comes with a later one is listed here.
func LevelOf(ops []*pb.Operation) int32 {
	level := int32(1)
	for _, op := range ops {
		level = max(level, levelOfKind(op))
	}
	return level
}

func levelOfKind(*pb.Operation) int32 { return 1 }
