package explain_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// caused is a cause of ENG-19.9, how it comes about, and what `bigfleet history` must say of it.
type caused struct {
	cause     string
	offerings []provider.Offering
	edit      func(*shard.Config)
	by        func(v *virtual.Fleet)
	word      string
	says      string // a pattern of the sentence
}

func causes() []caused {
	return []caused{
		{"phase1.speculative", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1) }, "bought", `^Bought for need/red/web \(priority 0\) at \$0\.20/h\.$`},
		{"phase1.handover", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1) }, "was reserved", `^It was reserved for need/red/web \(priority 0\) and is idle now\.$`},
		{"phase1.idle", onDemand(1), believesAll, func(v *virtual.Fleet) {
			red := wants(v, 1)
			red.Asks()
			v.Until("it is idle", func() bool {
				_, out := v.Bigfleet("get", "machines", "--state", "idle", "-o", "name")
				return strings.HasPrefix(out, "machine/")
			})
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, "idle machine fits", `^An idle machine fits need/red/web \(priority 0\)\.$`},
		{"phase2.inversion", onDemand(1), nil, func(v *virtual.Fleet) {
			wants(v, 1)
			v.Operator("blue", nil).Asks(virtual.Need("urgent", 1, 4, 1000))
		}, "outranked", `^need/blue/urgent \(priority 1000\) outranks need/red/web \(priority 0\) and takes its machine\. It was chosen by its victim score of `},
		{"phase2.excess", onDemand(2), holdsExcess, func(v *virtual.Fleet) {
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
			v.Operator("blue", nil).Asks(virtual.Need("urgent", 1, 4, 1000))
		}, "unused, required elsewhere", `^No need of cluster red uses it, and need/blue/urgent.* requires it\.`},
		{"phase3.excess", onDemand(2), nil, func(v *virtual.Fleet) { wants(v, 2).Asks(virtual.Need("web", 1, 4, 0)) },
			"unused", `^No need uses it any more; it was need/red/web that used it\.$`},
		{"phase3.excess_promised", onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 2)
			v.Operator("blue", nil).Asks(virtual.Need("other", 1, 4, 0))
			v.Explains("blue", "other", pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS)
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, "unused, promised", `^No need uses it any more; it was need/red/web that used it, and need/blue/other waits for it\.$`},
		{"phase3.gang_moved", []provider.Offering{virtual.Slots("a", "a", 2), virtual.Slots("b", "b", 3, func(o *provider.Offering) { o.PricePerHour = 0.3 })}, nil, func(v *virtual.Fleet) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("gang", 2, 4, 0, virtual.Same(virtual.RackKey)))
			v.Configured("red", 2)
			red.Asks(virtual.Need("gang", 3, 4, 0, virtual.Same(virtual.RackKey)))
		}, "gang moved", `^The gang that used it has moved to another domain; it was need/red/gang that used it\.$`},
		{"phase3.not_joined", onDemand(10), nil, oneNeverJoins, "never joined", `^Its Node never joined cluster red\.$`},
		{"person.drained", bareMetal("a", "b"), nil, func(v *virtual.Fleet) { personDrains(v, 0) }, "drained by a person",
			`^Its Node took no Pods: cordoned since 08:00 UTC: disk errors, by alice\. No Pod was left on it, so it is released\. No cluster gets it for an hour\.$`},
		{"phase3.release", onDemand(2), nil, func(v *virtual.Fleet) { wants(v, 2).Asks(virtual.Need("web", 1, 4, 0)) },
			"idle for too long", `^It was idle for longer than its hold time, so it is returned to its provider\.$`},
		{"move.drained", onDemand(2), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true})
			wants(v, 2)
			v.Instructs(&pb.CoordinatorInstruction{InstructionId: "r1", Payload: &pb.CoordinatorInstruction_ReserveMachines{ReserveMachines: &pb.ReserveMachines{
				MoveId: "m1", ToShardId: "other", Count: 1, Tier: pb.MoveTier_MOVE_TIER_DRAIN, InstanceType: "c.4x", CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND,
				RequesterPriority: 1000, RequesterInterruptionBucket: pb.PenaltyBucket_PENALTY_BUCKET_1}}})
		}, "moves to a shard", `^It moves to another shard, where a need of higher priority and penalty requires it\.`},
	}
}

// personDrains has a person cordon the machine of red for a repair. Pods of it have to leave yet.
func personDrains(v *virtual.Fleet, pods int32) {
	red := wants(v, 1)
	name := v.Configured("red", 1)[0]
	red.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{virtual.Need("web", 1, 4, 0)}, OutOfService: []*pb.MachineOutOfService{{
		MachineId: name, Reason: pb.MachineOutOfService_REASON_CORDONED, SinceUnixNanos: 1_800_000_000e9, Pods: pods, Detail: "disk errors, by alice"}}}}})
}

// holdsExcess lets machines that no need uses stay for a while.
func holdsExcess(c *shard.Config) { c.ReleaseDelay, c.NoRollupGuard = time.Hour, true }

// user-asks 6, ENG-19.9, OPS-4.18: each cause of an action comes about for real, and history says it in words: in the column CAUSE, in a
// sentence, and for programs beside the code.
func TestEachCause(t *testing.T) {
	for _, c := range causes() {
		t.Run(c.cause, func(t *testing.T) {
			virtual.Run(t, c.offerings, c.edit, func(v *virtual.Fleet) {
				c.by(v)
				var r struct{ Type, Cause, MachineID, Sentence string }
				if !eventually(func() bool {
					for line := range strings.Lines(v.Does("history", "--limit", "1000", "-o", "jsonl")) {
						if json.Unmarshal([]byte(line), &r) == nil && r.Cause == c.cause && r.Type == "RECORD_TYPE_STARTED" {
							return true
						}
					}
					return false
				}) {
					t.Fatalf("nothing is ever done for it:\n%s", v.Does("history"))
				}
				if !regexp.MustCompile(c.says).MatchString(r.Sentence) {
					t.Errorf("the sentence is %q", r.Sentence)
				}
				table := v.Does("history", "machine/"+r.MachineID, "--limit", "1000", "-o", "wide")
				if strings.Contains(table, c.cause) || !strings.Contains(table, "  "+c.word+"  ") || !strings.Contains(table, r.Sentence) {
					t.Errorf("the table has no %q, or no %q:\n%s", c.word, r.Sentence, table)
				}
			})
		})
	}
}

// eventually asks less and less often, for an hour of virtual time.
func eventually(seen func() bool) bool {
	pause := 250 * time.Millisecond
	for deadline := time.Now().Add(time.Hour); time.Now().Before(deadline); time.Sleep(pause) {
		if seen() {
			return true
		}
		pause = min(pause+pause/4, 30*time.Second)
	}
	return false
}

// None of the causes is left out.
func TestCausesAreWhole(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range causes() {
		listed[c.cause] = true
	}
	clause := clauseOf(t, "engine.md", "ENG-19.9")
	for _, m := range regexp.MustCompile("`((?:phase[123]|move|person)\\.[a-z_]+)`").FindAllStringSubmatch(clause, -1) {
		if !listed[m[1]] {
			t.Errorf("nothing causes %s", m[1])
		}
		delete(listed, m[1])
	}
	if len(listed) > 0 {
		t.Errorf("the specification knows no %v", listed)
	}
}

// clauseOf is the text of a clause of a specification.
func clauseOf(t *testing.T, file, clause string) string {
	t.Helper()
	raw, err := os.ReadFile("../../../../../docs/spec/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "- **"+clause+"**")
	if !found {
		t.Fatalf("%s has no %s", file, clause)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return line
}
