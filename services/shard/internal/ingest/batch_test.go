package ingest

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-13.4, WIRE-3.10: what a Batch remembers of earlier rows changes nothing about a row: facts and refusals are those of
// Gate.Machine, whatever came before.
func TestABatchReadsEachRowAsIfItCameAlone(t *testing.T) {
	g, err := New(Limits{RollupBytes: 1 << 20, RollupNeeds: 100})
	if err != nil {
		t.Fatal(err)
	}
	labels := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "rack"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 3)
	passed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		b := g.Batch()
		for range rapid.IntRange(1, 60).Draw(t, "rows") {
			m := drawRecord(t)
			m.Labels = labels.Draw(t, "labels")
			want, wantRefused := g.Machine(m, "")
			got, gotRefused := b.Machine(m)
			if !reflect.DeepEqual(got, want) || reasonOf(gotRefused) != reasonOf(wantRefused) {
				t.Fatalf("%v\nin a batch %+v %v\nalone      %+v %v", m, got, gotRefused, want, wantRefused)
			}
			if gotRefused == nil {
				passed++
			} else {
				refused++
			}
		}
	})
	if passed == 0 || refused == 0 {
		t.Errorf("%d rows passed, %d were refused", passed, refused)
	}
}

// reasonOf leaves out the text: of several wrong amounts it names any.
func reasonOf(r *Refused) string {
	if r == nil {
		return ""
	}
	return r.Reason
}

// Rows that are alike share what was read of them: a List of half a million keeps one copy for each kind.
func TestABatchSharesWhatRowsHaveInCommon(t *testing.T) {
	g, err := New(Limits{RollupBytes: 1 << 20, RollupNeeds: 100})
	if err != nil {
		t.Fatal(err)
	}
	row := func(id string) *pb.Machine {
		return &pb.Machine{Id: id, State: pb.MachineState_MACHINE_STATE_SPECULATIVE, InstanceType: "large", Labels: map[string]string{"rack": "r1"},
			Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}}}
	}
	b := g.Batch()
	x, _ := b.Machine(row("x"))
	y, _ := b.Machine(row("y"))
	if &x.Machine.Labels[0] != &y.Machine.Labels[0] || &x.Machine.Resources[0] != &y.Machine.Resources[0] {
		t.Error("two equal rows were read twice")
	}
	other := row("z")
	other.Resources.Resources["cpu"] = "8" // the same type with more
	if z, _ := b.Machine(other); z.Machine.Resources[0].Milli != 8000 {
		t.Errorf("%+v", z.Machine.Resources)
	}
}
