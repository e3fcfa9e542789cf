package plan_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/plan"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// record is the part of a decision record that says what is done to what for whom.
type record struct{ Type, Kind, MachineID, ClusterID, Cause, Outcome, Sequence string }

func (r record) key() string {
	return strings.ToLower(strings.TrimPrefix(r.Kind, "ACTION_KIND_")) + " " + r.MachineID + " " + r.ClusterID
}

// predicted is what `bigfleet plan --settle` with these edits says that will be done, and what the need of a row comes to.
func predicted(v *virtual.Fleet, edits ...string) (actions []string) {
	v.T.Helper()
	var plan struct{ Actions []record }
	if err := json.Unmarshal([]byte(v.Does(append([]string{"plan", "--settle", "-o", "jsonl"}, edits...)...)), &plan); err != nil {
		v.T.Fatal(err)
	}
	for _, a := range plan.Actions {
		actions = append(actions, a.key())
	}
	slices.Sort(actions)
	return actions
}

// done is what ended since the record with a sequence number, with the number of the newest. handed are machines that were bought or
// preempted and then joined; refused is what the provider did not carry out.
func done(v *virtual.Fleet, since string) (actions, handed, refused []string, last string) {
	v.T.Helper()
	for line := range strings.Lines(v.Does("history", "shard/shard-0", "--limit", "1000", "-o", "jsonl")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			v.T.Fatal(err)
		}
		if last == "" {
			last = r.Sequence
		}
		if r.Sequence == since {
			break
		}
		switch {
		case r.Type != "RECORD_TYPE_ENDED":
		case r.Outcome != "success":
			refused = append(refused, r.key())
		case r.Cause == "phase1.handover": // a purchase or a preemption comes to its end: the plan speaks of its beginning
			handed = append(handed, r.MachineID+" "+r.ClusterID)
		default:
			actions = append(actions, r.key())
		}
	}
	slices.Sort(actions)
	slices.Sort(handed)
	return actions, handed, refused, last
}

// rest waits until nothing is in flight, and then until nothing has begun for a while.
func rest(v *virtual.Fleet) {
	v.T.Helper()
	for last := "?"; ; {
		v.Until("nothing is in flight", func() bool { code, _ := v.Bigfleet("wait", "--for", "idle", "--timeout", "1s"); return code == 0 })
		_, _, _, now := done(v, "")
		if now == last {
			return
		}
		last = now
		time.Sleep(15 * time.Second) // a cycle, and a List
	}
}

// change is one edit, as the command makes it to a copy and as the world makes it.
type change struct {
	name      string
	offerings []provider.Offering
	before    func(v *virtual.Fleet) // what is there
	edits     []string
	real      func(v *virtual.Fleet)
	holds     []string // what the plan must hold, as a part of one of its actions
	stdin     string   // what -f - reads
	held      bool     // before it, something waits that is not done, so the fleet is not at rest
	config    func(*shard.Config)
	takes     time.Duration // until all has happened, where it is more than a minute: holds end, lost hosts are missed
	refused   string        // a part of every action that the provider refuses when it is made for real: it cannot be known before
}

func changes() []change {
	var red, blue *virtual.Operator
	at := func(name, zone string, count int, price float64) provider.Offering {
		return virtual.Slots(name, zone, count, func(o *provider.Offering) { o.PricePerHour = price })
	}
	unit := func(row string, units int, priority int32) *pb.CapacityNeed {
		n := virtual.Need(row, units, 4, priority)
		n.MinUnit = nil // as --add-demand has it
		return n
	}
	web := func(v *virtual.Fleet) {
		red = v.Operator("red", nil)
		red.Asks(unit("web", 2, 0))
		v.Configured("red", 2)
	}
	return []change{
		{
			name: "preemption", offerings: []provider.Offering{at("a", "a", 4, 0.2)},
			before: func(v *virtual.Fleet) {
				red, blue = v.Operator("red", nil), v.Operator("blue", nil)
				red.Asks(unit("batch", 4, 0))
				v.Configured("red", 4)
				blue.Asks()
			},
			edits: []string{"--add-demand", "blue:cpu=8,priority=1000"},
			real:  func(*virtual.Fleet) { blue.Asks(unit("urgent", 2, 1000)) },
			holds: []string{"preempt cloud-a-"},
		},
		{
			name: "price", offerings: []provider.Offering{at("a", "a", 4, 0.1), at("b", "b", 4, 0.2)},
			before: web, edits: []string{"--price", "c.4x@a=5", "--add-demand", "red:cpu=8"},
			real: func(v *virtual.Fleet) {
				for _, p := range v.Cloud.Pools() {
					if p.Zone == "a" {
						v.Cloud.SetPool(p.PoolKey, 0.5, 0)
					}
				}
				v.Until("the shard knows the new price", func() bool {
					_, out := v.Bigfleet("get", "machines", "--zone", "a", "--state", "speculative", "-o", "json")
					return strings.Contains(out, `"pricePerHour": 0.5`)
				})
				red.Asks(unit("web", 2, 0), unit("more", 2, -1))
			},
			holds: []string{"provision cloud-b-"},
		},
		{
			name: "stock", offerings: []provider.Offering{at("a", "a", 4, 0.1), at("b", "b", 4, 0.2)},
			before: web, edits: []string{"--stock-out", "c.4x@a", "--add-demand", "red:cpu=8"},
			real: func(v *virtual.Fleet) {
				v.Stock(&pb.MachineSelector{Zone: "a"}, 0)
				red.Asks(unit("web", 2, 0), unit("more", 2, -1))
			},
			holds: []string{"provision cloud-b-"}, refused: "provision cloud-a-",
		},
		{
			name: "a zone goes", offerings: []provider.Offering{at("a", "a", 4, 0.1), at("b", "b", 4, 0.2)},
			before: web, edits: []string{"--drain-zone", "a"},
			real: func(v *virtual.Fleet) {
				v.Stock(&pb.MachineSelector{Zone: "a"}, 0)
				if _, err := v.Control.LoseHosts(context.Background(), connect.NewRequest(&pb.LoseHostsRequest{Selector: &pb.MachineSelector{Zone: "a"}})); err != nil {
					v.T.Fatal(err)
				}
			},
			holds: []string{"provision cloud-b-"}, refused: "provision cloud-a-", takes: 30 * time.Minute,
		},
		{
			name: "demand", offerings: []provider.Offering{at("a", "a", 4, 0.1)},
			before: web, edits: []string{"--scale", "red=0.5"},
			real:  func(*virtual.Fleet) { red.Asks(unit("web", 1, 0)) },
			holds: []string{"reclaim cloud-a-", "delete cloud-a-"}, takes: 30 * time.Minute,
		},
		{
			name: "more demand", offerings: []provider.Offering{at("a", "a", 8, 0.1)},
			before: web, edits: []string{"--scale", "red=3"},
			real:  func(*virtual.Fleet) { red.Asks(unit("web", 6, 0)) },
			holds: []string{"provision cloud-a-"},
		},
		{
			name: "a new cluster", offerings: []provider.Offering{at("a", "a", 4, 0.1)},
			before: web, edits: []string{"--add-demand", "green:cpu=8"},
			real:  func(v *virtual.Fleet) { v.Operator("green", nil).Asks(unit("x", 2, 0)) },
			holds: []string{"provision cloud-a-", " green"},
		},
		{
			name: "a cluster goes", offerings: []provider.Offering{at("a", "a", 4, 0.1)}, config: func(c *shard.Config) { c.NoRollupGuard = true },
			before: web, edits: []string{"--drop-cluster", "red"},
			real:  func(*virtual.Fleet) { red.Asks() },
			holds: []string{"reclaim cloud-a-", "delete cloud-a-"}, takes: 30 * time.Minute,
		},
		{
			name: "a pause ends", offerings: []provider.Offering{at("a", "a", 4, 0.1)},
			before: func(v *virtual.Fleet) {
				v.Does("pause", "--kind", "provision", "--reason", "a trial", "--yes")
				red = v.Operator("red", nil)
				red.Asks(unit("web", 2, 0))
				v.Explains("red", "web", pb.NeedDetail_NEED_DETAIL_PAUSED)
			},
			edits: []string{"--lift-pause"},
			real: func(v *virtual.Fleet) {
				name := strings.TrimPrefix(strings.TrimSpace(v.Does("get", "pauses", "-o", "name")), "pause/")
				v.Does("resume", name, "--reason", "over", "--yes")
			},
			holds: []string{"provision cloud-a-"}, held: true,
		},
		{
			name: "holds end", offerings: []provider.Offering{at("a", "a", 4, 0.1)},
			before: func(v *virtual.Fleet) {
				v.Does("pause", "--kind", "provision", "--reason", "a trial", "--yes")
				red = v.Operator("red", nil)
				red.Asks(unit("web", 2, 0))
				v.Explains("red", "web", pb.NeedDetail_NEED_DETAIL_PAUSED)
				red.Close()
				name := strings.TrimPrefix(strings.TrimSpace(v.Does("get", "pauses", "-o", "name")), "pause/")
				v.Does("resume", name, "--reason", "over", "--yes")
				v.Explains("red", "web", pb.NeedDetail_NEED_DETAIL_CLUSTER_OFFLINE)
			},
			edits: []string{"--lift-holds"},
			real: func(v *virtual.Fleet) {
				red = v.Operator("red", nil)
				red.Asks(unit("web", 2, 0))
			},
			holds: []string{"provision cloud-a-"}, held: true,
		},
		{
			name: "a row goes and another comes", offerings: []provider.Offering{at("a", "a", 4, 0.1), at("b", "b", 4, 0.2)},
			before: func(v *virtual.Fleet) {
				red = v.Operator("red", nil)
				red.Asks(unit("web", 2, 0), unit("batch", 1, -5))
				v.Configured("red", 3)
			},
			edits: []string{"-f", "-"},
			stdin: "demand:\n- {clusterId: red, remove: batch}\n- clusterId: red\n  add: {rowId: far, aggregateResources: {cpu: '8'}, priority: 7,\n" +
				"    requirements: [{key: topology.kubernetes.io/zone, operator: OPERATOR_IN, values: [b]}]}\n",
			real:  func(*virtual.Fleet) { red.Asks(unit("web", 2, 0), inZone(unit("far", 2, 7), "b")) },
			holds: []string{"provision cloud-b-", "reclaim cloud-a-"}, takes: 30 * time.Minute,
		},
		{
			name: "penalty", offerings: []provider.Offering{spot("s", "a", 4, 0.05, 0.2), at("a", "a", 4, 0.3)},
			before: web, edits: []string{"-f", "-"},
			stdin: "demand:\n- clusterId: red\n  add: {rowId: dear, aggregateResources: {cpu: '8'}, interruptionPenaltyBucket: PENALTY_BUCKET_64}\n",
			real: func(*virtual.Fleet) {
				dear := unit("dear", 2, 0)
				dear.InterruptionPenaltyBucket = pb.PenaltyBucket_PENALTY_BUCKET_64
				red.Asks(unit("web", 2, 0), dear)
			},
			holds: []string{"provision cloud-a-"},
		},
		{
			name: "a machine goes", offerings: []provider.Offering{at("a", "a", 2, 0.1), at("b", "b", 4, 0.2)},
			before: web, edits: []string{"--remove-machine", "cloud-a-0"},
			real: func(v *virtual.Fleet) {
				v.Stock(&pb.MachineSelector{Zone: "a"}, 0)
				if _, err := v.Control.LoseHosts(context.Background(), connect.NewRequest(&pb.LoseHostsRequest{Selector: &pb.MachineSelector{MachineIds: []string{"cloud-a-0"}}})); err != nil {
					v.T.Fatal(err)
				}
			},
			holds: []string{"provision cloud-b-"}, refused: "provision cloud-a-", takes: 30 * time.Minute,
		},
	}
}

func inZone(n *pb.CapacityNeed, zone string) *pb.CapacityNeed {
	virtual.In(virtual.ZoneKey, zone)(n)
	return n
}

// spot is capacity that may be taken away.
func spot(name, zone string, count int, price, probability float64) provider.Offering {
	return virtual.Slots(name, zone, count, func(o *provider.Offering) {
		o.CapacityType, o.PricePerHour, o.InterruptionProbability = provider.Spot, price, probability
	})
}

// user-asks 3, OPS-4.16, ENG-20.2, ENG-20.4: what `plan --settle` predicts is exactly what happens until the fleet is at rest,
// once the same change is made for real: the same actions on the same machines for the same clusters, no more and no fewer. Asking
// changes nothing. The shard is a real one with a simulated cloud, in virtual time.
func TestPredictionIsFact(t *testing.T) {
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			virtual.Run(t, c.offerings, c.config, func(v *virtual.Fleet) {
				v.Stdin = c.stdin
				c.before(v)
				if !c.held {
					rest(v)
				}
				_, _, _, from := done(v, "")
				want := predicted(v, c.edits...)
				for _, part := range c.holds {
					if !slices.ContainsFunc(want, func(a string) bool { return strings.Contains(a, part) }) {
						t.Errorf("the plan contains no %q: %v", part, want)
					}
				}
				if again := predicted(v, c.edits...); !slices.Equal(again, want) {
					t.Errorf("asked twice, planned differently:\n%v\n%v", want, again)
				}
				if began, _, _, _ := done(v, from); len(began) > 0 {
					t.Errorf("asking did something: %v", began)
				}
				c.real(v)
				time.Sleep(max(c.takes, time.Minute))
				rest(v)
				got, handed, refused, _ := done(v, from)
				if !slices.Equal(got, want) {
					t.Errorf("done\n  %s\npredicted\n  %s\nrefused %v", strings.Join(got, "\n  "), strings.Join(want, "\n  "), refused)
				}
				for _, h := range handed {
					if machine, cluster, _ := strings.Cut(h, " "); !slices.Contains(want, "provision "+h) && !slices.ContainsFunc(want, func(a string) bool { return strings.HasPrefix(a, "preempt "+machine+" ") }) {
						t.Errorf("%s joined %s, which no plan spoke of", machine, cluster)
					}
				}
				for _, r := range refused {
					if c.refused == "" || !strings.Contains(r, c.refused) {
						t.Errorf("refused: %s", r)
					}
				}
			})
		})
	}
}

// OPS-4.16: there is no edit whose prediction is not compared with the fact.
func TestEachEditIsCompared(t *testing.T) {
	compared := map[string]bool{}
	for _, c := range changes() {
		for _, word := range c.edits {
			compared[strings.TrimLeft(word, "-")] = true
		}
	}
	edits := 0
	plan.New(app.New(env.System())).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "stringArray" && !strings.HasPrefix(f.Name, "lift-") {
			return // how to ask, not what to change
		}
		if edits++; !compared[f.Name] {
			t.Errorf("no change of TestPredictionIsFact makes --%s", f.Name)
		}
	})
	if edits < 9 || !compared["f"] {
		t.Errorf("%d edits are flags, want nine and a file", edits)
	}
}
