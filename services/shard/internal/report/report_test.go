package report

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// COORD-7.13, 21.35: acks that do not get through are put back in front, in order. Beyond 1,024 the oldest are dropped and
// counted, however long the coordinator is away.
func TestAcksWaitInFrontAndAreBounded(t *testing.T) {
	dropped := 0
	r := &Reporter{cfg: Config{OnDropped: func(n int) { dropped += n }}}
	for round := range 2 * acksMax {
		sent := &pb.ShardReport{InstructionAcks: r.acks} // as build takes them
		r.acks = []*pb.InstructAck{{InstructionId: fmt.Sprint(round)}}
		r.requeue(sent)
	}
	if len(r.acks) != acksMax || dropped != acksMax {
		t.Fatalf("%d acks wait, %d were dropped", len(r.acks), dropped)
	}
	for i, a := range r.acks {
		if want := fmt.Sprint(acksMax + i); a.InstructionId != want {
			t.Fatalf("ack %d is %s, want %s", i, a.InstructionId, want)
		}
	}
}

// COORD-10.2: the list of clusters is in the report after a change, in every sixth one, and again after a report that did
// not arrive. That a roll-up grew older is not a change.
func TestClustersAreReportedAfterAChange(t *testing.T) {
	r := &Reporter{cfg: Config{OnDropped: func(int) {}}}
	next := func(links ...*pb.ClusterLink) bool {
		r.cycle++
		return r.linksDue(links)
	}
	red := func(live bool, machines int32, age int64) *pb.ClusterLink {
		return &pb.ClusterLink{ClusterId: "red", LiveSession: live, BoundMachines: machines, RollupAgeSeconds: age}
	}
	steps := []struct {
		links []*pb.ClusterLink
		want  bool
	}{
		{nil, true}, {nil, false}, {[]*pb.ClusterLink{red(true, 0, 1)}, true}, {[]*pb.ClusterLink{red(true, 0, 11)}, false},
		{[]*pb.ClusterLink{red(true, 3, 21)}, true}, {[]*pb.ClusterLink{red(false, 3, 31)}, true}, {nil, true},
		{nil, false}, {nil, false}, {nil, false}, {nil, false}, {nil, false}, {nil, true},
	}
	for i, s := range steps {
		if got := next(s.links...); got != s.want {
			t.Errorf("report %d has the list: %v", i, got)
		}
	}
	r.requeue(&pb.ShardReport{ClustersComplete: true})
	if !next() {
		t.Error("the list of a lost report is not sent again")
	}
}

// SHARD-21.1, COORD-7.14: a shard that never had an answer asks again after 1 to 3 s; later the interval holds, with a jitter of a
// tenth that is another one each time.
func TestPauses(t *testing.T) {
	r := &Reporter{cfg: Config{Interval: 10 * time.Second}}
	draws := func(suggested, low, high time.Duration) {
		t.Helper()
		seen := map[time.Duration]bool{}
		for range 200 {
			d := r.pause(suggested)
			seen[d] = true
			if d < low || d > high {
				t.Fatalf("pause of %s, want %s to %s", d, low, high)
			}
		}
		if len(seen) < 100 {
			t.Errorf("%d different pauses of 200", len(seen))
		}
	}
	draws(0, time.Second, 3*time.Second)
	r.answered = true
	draws(0, 9*time.Second, 11*time.Second)
	draws(300*time.Millisecond, 270*time.Millisecond, 330*time.Millisecond)
	draws(time.Hour, 90*time.Second, 110*time.Second)
}

type disk struct {
	broken bool
	put    []string
}

func (d *disk) Put(bucket, key string, value []byte) error {
	if d.broken {
		return errors.New("full")
	}
	d.put = append(d.put, bucket+"/"+key+"="+string(value))
	return nil
}

// COORD-9.7, SHARD-5.4: what was given back is reported once the disk knows of it, until a view does not list it any more;
// a violation goes with one report, and again if that is lost.
func TestWhatIsGivenBackIsStoredFirst(t *testing.T) {
	d := &disk{broken: true}
	r := &Reporter{cfg: Config{Store: d, Log: slog.New(slog.DiscardHandler), OnDropped: func(int) {}}, acked: make(chan struct{}, 1), given: map[string]bool{}}
	view := &core.View{Returned: []core.Exception{{Machine: "m1"}}}
	r.Notice(core.Notice{GivenBack: []string{"m1"}, Store: []core.Persist{{Bucket: "control", Key: "view", Value: []byte("v2")}}})
	r.Ack(core.AckInstruction{ID: "later", Outcome: core.InstructionAccepted})
	if r.storeAcks(); len(r.returned(view)) != 0 || len(r.acks) != 0 {
		t.Fatalf("said before it was stored: %v, %v", r.returned(view), r.acks)
	}
	d.broken = false
	if r.storeAcks(); !slices.Equal(d.put, []string{"control/view=v2"}) || len(r.acks) != 1 {
		t.Fatalf("stored %v, %d acks", d.put, len(r.acks))
	}
	if got := r.returned(&core.View{}); len(got) != 0 { // the publication trails
		t.Errorf("returned %v", got)
	}
	for range 3 {
		if got := r.returned(view); !slices.Equal(got, []string{"m1"}) {
			t.Errorf("returned %v", got)
		}
	}
	if got := r.returned(&core.View{}); len(got) != 0 || len(r.given) != 0 {
		t.Errorf("after a view without it: returned %v, remembered %v", got, r.given)
	}
	for range 2 * violationsMax {
		r.Notice(core.Notice{Violated: "m2"})
	}
	if len(r.violations) != violationsMax {
		t.Errorf("%d violations wait", len(r.violations))
	}
	r.violations = nil
	if r.requeue(&pb.ShardReport{OwnershipViolations: []string{"m2"}}); !slices.Equal(r.violations, []string{"m2"}) {
		t.Errorf("after a lost report %v wait", r.violations)
	}
}

// SHARD-21.2, COORD-7.6: a report sums up all machines, and lists the supply by key, the most idle first, as many as the coordinator keeps.
func TestSupplyOfAReport(t *testing.T) {
	found := map[core.SupplyKey]*core.Supply{}
	for i := range bucketsMax + 3 {
		s := &core.Supply{Price: 500_000, Offer: []resource.Quantity{{Name: "cpu", Milli: 4000}}}
		s.States[inventory.Idle], s.States[inventory.Speculative], s.States[inventory.Configured], s.States[inventory.Failed] = int32(i), 2, 3, 1
		found[core.SupplyKey{Type: fmt.Sprintf("t%03d", i), Zone: "z", Arch: "arm64", OS: "linux", Region: "r", Capacity: inventory.Spot}] = s
	}
	last := bucketsMax + 2
	idle := int32(last * (last + 1) / 2)
	sum := summary(found)
	if n := int32(len(found)); sum.GetTotalMachines() != idle+6*n || sum.GetFreeMachines() != idle+2*n || sum.GetPerZoneCounts()["z"] != idle+6*n || sum.GetPerInstanceTypeCounts()["t004"] != 10 {
		t.Errorf("sum %v", sum)
	}
	list := buckets(found)
	if len(list) != bucketsMax || list[bucketsMax-1].GetIdle() != 3 {
		t.Fatalf("%d buckets, the last %v", len(list), list[len(list)-1])
	}
	want := &pb.SupplyBucket{InstanceType: fmt.Sprintf("t%03d", last), Zone: "z", CapacityType: pb.CapacityType(inventory.Spot), Arch: "arm64", Os: "linux", Region: "r", Idle: int32(last),
		Speculative: 2, Configured: 3, Allocatable: convert.Quantities([]resource.Quantity{{Name: "cpu", Milli: 4000}}), PricePerHour: 0.5}
	if !proto.Equal(list[0], want) {
		t.Errorf("the first bucket is %v, want %v", list[0], want)
	}
}
