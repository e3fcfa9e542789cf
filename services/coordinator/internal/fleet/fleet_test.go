package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// log applies entries one after the other, as a replica does.
type log struct {
	t       testing.TB
	s       *State
	n       uint64
	entries []*pb.Envelope // all that was applied
}

func newLog(t testing.TB) *log {
	l := &log{t: t, s: &State{}}
	l.must(&pb.Operation{Kind: &pb.Operation_InitGroup{InitGroup: &pb.InitGroup{ClusterUuid: "uuid-1", FeatureLevel: 1}}},
		&pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{}}})
	return l
}

func envelope(ops ...*pb.Operation) *pb.Envelope {
	return &pb.Envelope{Format: Format, Level: Level, Actor: "bigfleet://admin", Operations: ops}
}

func (l *log) apply(ops ...*pb.Operation) *Outcome {
	l.t.Helper()
	l.n++
	e := envelope(ops...)
	e.ProposedAtUnixNanos = int64(l.n) * 1e9
	l.entries = append(l.entries, e)
	next, out, err := Apply(l.s, l.n, e)
	if err != nil {
		l.t.Fatal(err)
	}
	l.s = next
	if err := l.s.Check(); err != nil {
		l.t.Fatalf("COORD-3.2 after entry %d %v: %v", l.n, ops, err)
	}
	return out
}

func (l *log) must(ops ...*pb.Operation) {
	l.t.Helper()
	if r := l.apply(ops...).Err(); r != nil {
		l.t.Fatalf("refused: %v", r)
	}
}

func (l *log) refused(kind Kind, op *pb.Operation) *Refusal {
	l.t.Helper()
	before := l.s.Hash()
	r := l.apply(op).Err()
	if r == nil || r.Kind != kind {
		l.t.Fatalf("got %v, want a refusal of kind %d", r, kind)
	}
	if l.s.Hash() != before {
		l.t.Fatalf("a refused operation changed the state: %v", r)
	}
	return r
}

func addShard(id, provider string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AddShard{AddShard: &pb.AddShard{ShardId: id, Address: id + ":7780", ProviderAddress: provider}}}
}

func removeShard(id string, force bool) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_RemoveShard{RemoveShard: &pb.RemoveShard{ShardId: id, Force: force}}}
}

func bind(cluster, shard string, rebind bool) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{ClusterId: cluster, ShardId: shard, Rebind: rebind, Source: v1.ClusterBinding_SOURCE_ADMIN}}}
}

func assign(value, shard string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: ZoneKey, Value: value, ShardId: shard}}}
}

func moveTo(value, shard string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_MoveDomain{MoveDomain: &pb.MoveDomain{Key: ZoneKey, Value: value, To: shard}}}
}

func unassign(value string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_UnassignDomain{UnassignDomain: &pb.UnassignDomain{Key: ZoneKey, Value: value}}}
}

func setQuota(declared int32, slices map[string]int32) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_SetQuota{SetQuota: &pb.SetQuota{Quota: &v1.Quota{Provider: "sim", Region: "eu", Declared: declared, Slices: slices}}}}
}

func planned(id, from, to string, tier v1.MoveTier, wanted int32) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_CreateMove{CreateMove: &pb.CreateMove{Move: &pb.Move{
		MoveId: id, From: from, To: to, Provider: "sim", Region: "eu", Tier: tier, Wanted: wanted, State: v1.Move_STATE_PLANNED}}}}
}

func advance(id string, from, to v1.Move_State, machines ...string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AdvanceMove{AdvanceMove: &pb.AdvanceMove{MoveId: id, Expected: from, Next: to, MachineIds: machines}}}
}

// COORD-4.4, COORD-21.21: an entry that this binary does not understand stops it before anything is applied.
func TestUnknownEntryStopsTheReplica(t *testing.T) {
	l := newLog(t)
	for name, e := range map[string]*pb.Envelope{
		"format":       {Format: Format + 1, Operations: []*pb.Operation{addShard("a", "sim")}},
		"level":        {Format: Format, Level: Level + 1, Operations: []*pb.Operation{addShard("a", "sim")}},
		"unknown kind": {Format: Format, Level: Level, Operations: []*pb.Operation{addShard("a", "sim"), {}}},
	} {
		next, _, err := Apply(l.s, l.n+1, e)
		if err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: got %v, want an error that names the remedy", name, err)
		}
		if next != l.s {
			t.Errorf("%s: something was applied", name)
		}
	}
}

// COORD-4.3: a known operation without payload, or with nonsense in it, is a refusal and never a panic.
func TestNonsenseIsRefusedNotFatal(t *testing.T) {
	l := newLog(t)
	fields := (&pb.Operation{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		op := &pb.Operation{}
		m := op.ProtoReflect()
		m.Set(fields.Get(i), m.NewField(fields.Get(i)))
		l.apply(op) // an empty payload; whether it is a no-op or a refusal depends on the kind
	}
	l.refused(Invalid, addShard("no spaces please", "sim"))
	l.refused(Invalid, addShard("a", "sim\x00x"))
	l.must(addShard("a", "sim"))
	l.refused(Invalid, assign("-bad-", "a"))
	l.refused(NotFound, assign("eu-1a", "unknown"))
	l.refused(Invalid, bind("/slash", "a", false))
}

// COORD-4.1: an atomic entry applies all operations or none.
func TestAtomicEntry(t *testing.T) {
	l := newLog(t)
	before := l.s.Hash()
	e := envelope(addShard("a", "sim"), assign("eu-1a", "unknown"), addShard("b", "sim"))
	e.Atomic = true
	next, out, err := Apply(l.s, l.n+1, e)
	if err != nil || out.Err() == nil || len(out.Results) != 3 {
		t.Fatalf("got %v %v", out, err)
	}
	if next.Hash() != before || next.Shard("a") != nil {
		t.Fatal("a part of a refused atomic entry was applied")
	}
}

// COORD-6.1.1: the fencing term only grows, and covers the Raft term and what a shard has seen.
func TestFencingTermOnlyGrows(t *testing.T) {
	l := newLog(t)
	rapid.Check(t, func(t *rapid.T) {
		before := l.s.Meta().GetFencingTerm()
		atLeast, raftTerm := rapid.Int64Range(-5, 1<<40).Draw(t, "at least"), rapid.Int64Range(-5, 1<<40).Draw(t, "raft")
		l.must(&pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{AtLeast: atLeast, RaftTerm: raftTerm}}})
		after := l.s.Meta().GetFencingTerm()
		if after <= before || after < atLeast || after < raftTerm {
			t.Fatalf("term %d after %d, at least %d, raft %d", after, before, atLeast, raftTerm)
		}
	})
}

// COORD-3.3, 7.9: a removal takes bindings, domains, slices, exceptions and moves along and leaves a tombstone.
func TestRemovalCascades(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("b", "sim"), assign("eu-1b", "b"), bind("blue", "b", false))
	l.must(setQuota(10, map[string]int32{"a": 4, "b": 6}))
	l.must(planned("m1", "a", "b", v1.MoveTier_MOVE_TIER_IDLE, 2), advance("m1", v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, "x1", "x2"),
		advance("m1", v1.Move_STATE_RESERVED, v1.Move_STATE_ADOPTED, "x1"), planned("m2", "a", "b", v1.MoveTier_MOVE_TIER_IDLE, 1))
	r := l.refused(Refused, removeShard("b", false))
	if !r.Force || !strings.Contains(strings.Join(r.Blockers, ","), "cluster blue") || !strings.Contains(strings.Join(r.Blockers, ","), "domain") {
		t.Fatalf("the refusal names %v", r.Blockers)
	}
	l.must(removeShard("b", true))
	if l.s.Shard("b").GetState() != v1.ShardState_SHARD_STATE_TOMBSTONED || l.s.Shard("b").GetRemovedBy() != "bigfleet://admin" {
		t.Fatalf("no tombstone: %v", l.s.Shard("b"))
	}
	if l.s.Cluster("blue").GetShardId() != "" || l.s.DomainCount() != 0 || l.s.ExceptionCount() != 0 || sliceOf(l.s.Quota("sim", "eu"), "b") != nil {
		t.Fatal("the shard still owns something")
	}
	if st := l.s.Move("m2").GetState(); st != v1.Move_STATE_CANCELLING {
		t.Fatalf("move m2 is %s: the donor must get an instruction to un-reserve", st)
	}
	l.refused(Refused, addShard("b", "sim"))
	l.must(&pb.Operation{Kind: &pb.Operation_ReadmitShard{ReadmitShard: &pb.ReadmitShard{ShardId: "b"}}}, addShard("b", "sim"))
}

// COORD-4.7: operations are idempotent; repeating one changes nothing.
func TestOperationsAreIdempotent(t *testing.T) {
	l := newLog(t)
	for _, op := range []*pb.Operation{
		addShard("a", "sim"), addShard("b", "sim"), assign("eu-1a", "a"), assign("eu-1b", "b"), bind("red", "a", false), bind("red", "b", true),
		setQuota(9, map[string]int32{"a": 3}), planned("m", "a", "b", v1.MoveTier_MOVE_TIER_QUOTA, 2),
		advance("m", v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, "s1", "s2"), advance("m", v1.Move_STATE_RESERVED, v1.Move_STATE_ADOPTED, "s2"),
		unassign("eu-1a"), moveTo("eu-1b", "a"), removeShard("b", true),
	} {
		l.must(op)
		before := l.s.Hash()
		l.must(op)
		if l.s.Hash() != before {
			t.Fatalf("the second application of %v changed the state", op)
		}
	}
}

// COORD-12.20, COORD-21.44: units follow the machines of a tier 2 move and come back when it is undone.
func TestQuotaFollowsAMove(t *testing.T) {
	for name, tc := range map[string]struct {
		steps    []*pb.Operation
		from, to int32
	}{
		"adopted in part": {[]*pb.Operation{advance("m", v1.Move_STATE_RESERVED, v1.Move_STATE_ADOPTED, "s1")}, 9, 1},
		"undone": {[]*pb.Operation{advance("m", v1.Move_STATE_RESERVED, v1.Move_STATE_WITHDRAWING),
			advance("m", v1.Move_STATE_WITHDRAWING, v1.Move_STATE_CANCELLING), advance("m", v1.Move_STATE_CANCELLING, v1.Move_STATE_ABORTED)}, 10, 0},
	} {
		l := newLog(t)
		l.must(addShard("a", "sim"), addShard("b", "sim"), setQuota(10, map[string]int32{"a": 10}), planned("m", "a", "b", v1.MoveTier_MOVE_TIER_QUOTA, 3))
		l.must(advance("m", v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, "s1", "s2", "s3"))
		if got := sliceOf(l.s.Quota("sim", "eu"), "a").GetTarget(); got != 7 {
			t.Fatalf("%s: the donor's slice is %d while the units are under way, want 7", name, got)
		}
		l.must(tc.steps...)
		q := l.s.Quota("sim", "eu")
		if sliceOf(q, "a").GetTarget() != tc.from || sliceOf(q, "b").GetTarget() != tc.to || len(q.GetTransits()) != 0 {
			t.Errorf("%s: got %v", name, q)
		}
	}
}

// COORD-9.1, 12.14: the recipient's view names the moves it may have adopted from, until the leader has decided.
func TestViewNamesArrivingMoves(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("b", "sim"), planned("m", "a", "b", v1.MoveTier_MOVE_TIER_IDLE, 1))
	for _, step := range []struct {
		op   *pb.Operation
		want []string
	}{
		{advance("m", v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, "s1"), []string{"m"}},
		{advance("m", v1.Move_STATE_RESERVED, v1.Move_STATE_WITHDRAWING), []string{"m"}},
		{advance("m", v1.Move_STATE_WITHDRAWING, v1.Move_STATE_CANCELLING), nil},
	} {
		l.must(step.op)
		if got := l.s.View("b").GetArrivingMoveIds(); !slices.Equal(got, step.want) || len(l.s.View("a").GetArrivingMoveIds()) != 0 {
			t.Errorf("after %v b's view names %v, want %v", step.op.GetAdvanceMove().GetNext(), got, step.want)
		}
	}
}

// COORD-16.10: a committed call is in the ring with its result, also when the state refused it; the ring is bounded.
func TestAuditRing(t *testing.T) {
	l := newLog(t)
	record := &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: "AssignDomain", RequestJson: "{}", Reason: "why"}}}
	l.apply(assign("eu-1a", "unknown"), record)
	for a := range l.s.AuditNewestFirst(0) {
		if a.GetRecord().GetResult() != "not_found" || a.GetRecord().GetActor() != "bigfleet://admin" || a.GetRecord().GetIndex() != l.n || a.GetRecord().GetAtUnixNanos() == 0 {
			t.Fatalf("got %v", a)
		}
	}
	for range AuditMax/100 + 1 {
		ops := make([]*pb.Operation, 100)
		for i := range ops {
			ops[i] = record
		}
		l.must(ops...)
	}
	n, last := 0, uint64(0)
	for a := range l.s.AuditNewestFirst(0) {
		if last != 0 && a.GetSequence() != last-1 {
			t.Fatalf("sequence %d after %d", a.GetSequence(), last)
		}
		n, last = n+1, a.GetSequence()
	}
	if n != AuditMax {
		t.Fatalf("the ring has %d records, want %d", n, AuditMax)
	}
}

func snapshotOf(t testing.TB, s *State) []byte {
	var buf bytes.Buffer
	if err := s.WriteSnapshot(&buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// COORD-5.3, 5.4, COORD-21.18: any flipped bit and any truncation of a snapshot is an error.
func TestDamagedSnapshot(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("b", "sim"), assign("eu-1a", "a"), bind("red", "a", false))
	whole := snapshotOf(t, l.s)
	if _, err := ReadSnapshot(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		if _, err := ReadSnapshot(bytes.NewReader(damaged)); err == nil {
			t.Fatalf("a flipped bit in byte %d was not noticed", i)
		}
		if _, err := ReadSnapshot(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("a snapshot cut at byte %d was not noticed", i)
		}
	}
	if _, err := ReadSnapshot(bytes.NewReader(append(bytes.Clone(whole), 0))); err == nil {
		t.Fatal("trailing bytes were not noticed")
	}
}

// COORD-5.6: a snapshot whose rows break a rule of COORD-3.2 is refused.
func TestSnapshotRulesAreChecked(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), assign("eu-1a", "a"))
	broken := *l.s
	broken.shards = hashedTable[pb.Shard, *pb.Shard]{}
	if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, &broken))); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Fatalf("got %v", err)
	}
}

// COORD-5.4: tables and fields of a newer minor format are kept out of the state and do not fail the read.
func TestSnapshotOfANewerMinorFormat(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"))
	newer := *l.s
	sh := proto.CloneOf(newer.Shard("a"))
	sh.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) // field 1023, varint 1
	newer.shards.put("a", sh)
	got, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, &newer)))
	if err != nil || got.Hash() != l.s.Hash() || len(got.Shard("a").ProtoReflect().GetUnknown()) != 0 {
		t.Fatalf("got %v", err)
	}
}

// COORD-9.1: the view of each kind of shard, word for word.
func TestViews(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"))
	check := func(shard string, want *v1.ShardView) {
		t.Helper()
		got := l.s.View(shard)
		want.Provider, want.PartitionKeys = "sim", []string{ZoneKey}
		if d := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&v1.ShardView{}, "version")); d != "" {
			t.Fatalf("view of %s:\n%s", shard, d)
		}
	}
	ref := func(value string) *v1.DomainRef { return &v1.DomainRef{TopologyKey: ZoneKey, TopologyValue: value} }
	check("a", &v1.ShardView{OnlyShard: true, DefaultOwner: true})
	l.must(addShard("b", "sim"), assign("eu-1b", "b"), assign("eu-1a", "a"))
	check("a", &v1.ShardView{DefaultOwner: true, OwnedDomains: []*v1.DomainRef{ref("eu-1a")}, ForeignDomains: []*v1.DomainRef{ref("eu-1b")}})
	check("b", &v1.ShardView{}) // a has not let go yet
	settleAll(l, "a")
	check("b", &v1.ShardView{OwnedDomains: []*v1.DomainRef{ref("eu-1b")}})
	l.must(setQuota(9, map[string]int32{"b": 5}))
	check("a", &v1.ShardView{DefaultOwner: true, OwnedDomains: []*v1.DomainRef{ref("eu-1a")}, ForeignDomains: []*v1.DomainRef{ref("eu-1b")},
		QuotaSlices: []*v1.QuotaSlice{{Provider: "sim", Region: "eu"}}})
	check("b", &v1.ShardView{OwnedDomains: []*v1.DomainRef{ref("eu-1b")}, QuotaSlices: []*v1.QuotaSlice{{Provider: "sim", Region: "eu", Machines: 5}}})
	l.must(addShard("c", "other"))
	if v := l.s.View("c"); !v.GetOnlyShard() || v.GetProvider() != "other" {
		t.Fatalf("got %v", v)
	}
	if l.s.View("unknown") != nil {
		t.Fatal("a view of an unknown shard")
	}
}

// settleAll commits what a shard's ack of its newest view allows.
func settleAll(l *log, shards ...string) {
	for _, id := range shards {
		if ops := l.s.AckedOperations(id, func(string, *pb.Version, *pb.Domain) bool { return true }); len(ops) > 0 {
			l.must(ops...)
		}
	}
}

// COORD-9.2: a version changes when the view does, and what concerns others leaves it alone.
func TestViewVersions(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("b", "sim"), addShard("c", "other"))
	version := func(id string) string { return fmt.Sprint(l.s.Shard(id).GetView()) }
	a, c := version("a"), version("c")
	l.must(assign("eu-1b", "b"))
	if version("a") == a || version("c") != c {
		t.Fatal("the default owner's view must change, a stranger's must not")
	}
	b := version("b")
	l.must(bind("red", "b", false))
	if version("b") == b {
		t.Fatal("b's view lists the cluster under an old version")
	}
	a = version("a")
	l.must(bind("green", "b", false))
	if version("a") != a {
		t.Fatal("a's view says nothing about b's cluster")
	}
}
