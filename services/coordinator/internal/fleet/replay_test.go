package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// derived is everything a state answers through its indexes.
func derived(s *State) []string {
	var out []string
	for sh := range s.Shards() {
		id := sh.GetShardId()
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(s.View(id))
		out = append(out, fmt.Sprintf("%s view %x awaited %v blockers %v", id, b, s.Awaited(id), s.RemovalBlockers(id)))
		for d := range s.HandoversOf(id) {
			out = append(out, id+" hands over "+d.GetValue())
		}
		for e := range s.ExceptionsOf(id) {
			out = append(out, id+" holds "+e.GetMachineId())
		}
		name, ok := s.ProviderOf(sh.GetProviderAddress())
		out = append(out, fmt.Sprintf("%s provider %s %v, shards %v", id, name, ok, slices.Collect(s.ShardsOf(name))))
	}
	for m := range s.OpenMoves() {
		out = append(out, "open "+m.GetMoveId())
	}
	return out
}

// replay applies entries to a state, in another process as it were: from the bytes that stand in the log.
func replay(t testing.TB, s *State, from uint64, entries []*pb.Envelope) *State {
	for i, e := range entries {
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		read := &pb.Envelope{}
		if err := proto.Unmarshal(b, read); err != nil {
			t.Fatal(err)
		}
		if s, _, err = Apply(s, from+uint64(i)+1, read); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// COORD-4.2, 5.4, 5.6: the same log gives the same state on every replica, whether it was replayed from the start or
// from a snapshot taken anywhere, and the old states stay what they were.
func TestSameLogSameState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		type kept struct {
			s    *State
			n    uint64
			hash string
		}
		var before []kept
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before = append(before, kept{w.l.s, w.l.n, w.l.s.Hash()})
			w.step(rt)
		}
		want, views := w.l.s.Hash(), derived(w.l.s)
		if got := replay(t, &State{}, 0, w.l.entries); got.Hash() != want || !slices.Equal(derived(got), views) {
			rt.Fatalf("COORD-4.2: a replay gives another state:\n%s", cmp.Diff(views, derived(got)))
		}
		at := rapid.SampledFrom(before).Draw(rt, "snapshot")
		if at.s.Hash() != at.hash {
			rt.Fatalf("COORD-5.5: a state changed after it was handed out")
		}
		restored, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, at.s)))
		if err != nil {
			rt.Fatal(err)
		}
		if restored.Hash() != at.hash || restored.Index() != at.s.Index() {
			rt.Fatalf("COORD-5.4: a snapshot reads back as another state")
		}
		if got := replay(t, restored, at.n, w.l.entries[at.n:]); got.Hash() != want || !slices.Equal(derived(got), views) {
			rt.Fatalf("COORD-5.6: the log from a snapshot gives another state:\n%s", cmp.Diff(views, derived(got)))
		}
	})
}

// COORD-21.44: slices, units under way and grants never give shards more than the declared total, whatever is shifted,
// lost or removed. A shard may use what its newest view says, and until then what an older one said.
func TestQuotaIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLog(t)
		const declared = 20
		ids := []string{"a", "b", "c"}
		usable := map[string]int32{} // what the shard's persisted view says
		acked := map[string]*pb.Version{}
		for _, id := range ids {
			l.must(addShard(id, "sim"))
		}
		l.must(setQuota(declared, map[string]int32{"a": 10, "b": 10}))
		see := func(id string) {
			for _, q := range l.s.View(id).GetQuotaSlices() {
				usable[id] = q.GetMachines()
			}
			acked[id] = l.s.Shard(id).GetView()
		}
		for _, id := range ids {
			see(id)
		}
		moves := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id, other := rapid.SampledFrom(ids).Draw(rt, "id"), rapid.SampledFrom(ids).Draw(rt, "other")
			switch rapid.SampledFrom([]string{"set", "shift", "view", "view", "settle", "move", "advance", "advance"}).Draw(rt, "what") {
			case "set":
				n := rapid.SliceOfN(rapid.Int32Range(0, 10), 3, 3).Draw(rt, "slices")
				l.apply(setQuota(declared, map[string]int32{"a": n[0], "b": n[1], "c": n[2]}))
			case "shift":
				l.apply(&pb.Operation{Kind: &pb.Operation_ShiftQuota{ShiftQuota: &pb.ShiftQuota{Provider: "sim", Region: "eu", From: id, To: other, Units: rapid.Int32Range(0, 6).Draw(rt, "n")}}})
			case "view":
				see(id)
			case "settle":
				if ops := l.s.AckedOperations(id, func(s string, v *pb.Version, _ *pb.Domain) bool { return !NewerView(v, acked[s]) }); len(ops) > 0 {
					l.must(ops...)
				}
			case "move":
				moves++
				l.apply(planned(fmt.Sprint("m", moves), id, other, v1.MoveTier_MOVE_TIER_QUOTA, 3))
			case "advance":
				for m := range l.s.OpenMoves() {
					next := rapid.SampledFrom(transitions[m.GetState()]).Draw(rt, "next")
					l.must(advance(m.GetMoveId(), m.GetState(), next, "x"+m.GetMoveId(), "y"+m.GetMoveId()))
					break
				}
			}
			sum := int32(0)
			for _, n := range usable {
				sum += n
			}
			if sum > declared {
				rt.Fatalf("shards may use %v of %d; row %v", usable, declared, l.s.Quota("sim", "eu"))
			}
		}
		for range 2 {
			for _, id := range ids {
				see(id)
				if ops := l.s.AckedOperations(id, func(s string, v *pb.Version, _ *pb.Domain) bool { return !NewerView(v, acked[s]) }); len(ops) > 0 {
					l.must(ops...)
				}
			}
		}
		for _, s := range l.s.Quota("sim", "eu").GetSlices() {
			if s.GetGranted() != s.GetTarget() {
				rt.Fatalf("slice %v never settles", s)
			}
		}
	})
}

// COORD-15.9, 15.16, COORD-21.26: holdings bring back what the archive does not know; of two claims the newer view wins.
func TestHoldingsAreMerged(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("b", "sim"), assign("eu-1a", "a"), assign("eu-1c", "a"), bind("red", "a", false))
	l.must(planned("m1", "a", "b", v1.MoveTier_MOVE_TIER_IDLE, 1))
	term := l.s.Meta().GetFencingTerm()
	l.s = RestoreFrom(l.s, "uuid-2", "node-0", &pb.Peer{NodeId: "node-0"}, 1_000_000, 0, 1)
	if m := l.s.Meta(); m.GetClusterUuid() != "uuid-2" || m.GetPreviousUuids()[0] != "uuid-1" || m.GetFencingTerm() != term+1_000_000 || !l.s.Merging() {
		t.Fatalf("got %v", m)
	}
	domain := func(v string) *v1.DomainRef { return &v1.DomainRef{TopologyKey: ZoneKey, TopologyValue: v} }
	merge := func(shard string, index uint64, h *v1.Holdings) {
		l.must(&pb.Operation{Kind: &pb.Operation_MergeHoldings{MergeHoldings: &pb.MergeHoldings{ShardId: shard, View: &pb.Version{Term: 3, Index: index}, Holdings: h}}})
	}
	// After the archive eu-1a went to b, eu-1b was assigned to b, eu-1c was unassigned, red was rebound, x1 moved to b,
	// and both claim eu-1d.
	merge("a", 90, &v1.Holdings{Domains: []*v1.DomainRef{domain("eu-1d")}, ReleasedClusters: []string{"red"},
		ExceptionsOut: []*v1.MachineException{{MachineId: "x1", OwnerShardId: "b", MoveId: "m1"}},
		Reservations:  []*v1.Reservation{{MoveId: "m9", MachineIds: []string{"x9"}}}})
	merge("b", 95, &v1.Holdings{Domains: []*v1.DomainRef{domain("eu-1a"), domain("eu-1b"), domain("eu-1d")},
		ExceptionsIn: []*v1.MachineException{{MachineId: "x1", OwnerShardId: "b", MoveId: "m1"}}})
	l.must(&pb.Operation{Kind: &pb.Operation_FinishMerge{FinishMerge: &pb.FinishMerge{}}})
	for value, owner := range map[string]string{"eu-1a": "b", "eu-1b": "b", "eu-1c": "", "eu-1d": "b"} {
		if got := l.s.Domain(ZoneKey, value).GetOwner(); got != owner {
			t.Errorf("domain %s belongs to %q, want %q", value, got, owner)
		}
	}
	if e := l.s.Exception("sim", "x1"); e.GetOwner() != "b" || l.s.Move("m1").GetState() != v1.Move_STATE_ADOPTED {
		t.Errorf("the adopted machine: %v, its move: %v", e, l.s.Move("m1"))
	}
	if m := l.s.Move("m9"); m.GetState() != v1.Move_STATE_CANCELLING || m.GetFrom() != "a" {
		t.Errorf("the orphan reservation became %v", m)
	}
	if c := l.s.Cluster("red"); c.GetShardId() != "" || !LetGo(c, "a") {
		t.Errorf("the released cluster is %v", c)
	}
	noted := 0
	for a := range l.s.AuditNewestFirst(0) {
		if a.GetRecord().GetMethod() == "merge" {
			noted++
		}
	}
	if noted != 1 {
		t.Errorf("%d conflicts are audited, want 1", noted)
	}
	for _, id := range []string{"a", "b"} {
		if v := l.s.Shard(id).GetView(); !NewerView(v, &pb.Version{Term: 500_000, Index: 1 << 60}) {
			t.Errorf("the view of %s has version %v, older than one that was sent after the archive", id, v)
		}
	}
	if d := cmp.Diff([]string{"a", "b"}, l.s.Meta().GetRestored().GetMergedShards(), protocmp.Transform()); d != "" || l.s.Merging() {
		t.Error(d)
	}
}
