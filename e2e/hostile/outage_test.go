package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// look is what a person sees of a shard.
type look struct {
	t       *testing.T
	read    api.ShardReadClient
	metrics string
}

func (s *stage) look() *look {
	c := s.caller(identity.ID{Kind: identity.Admin})
	return &look{s.t, api.NewShardReadClient(c.http, "https://"+s.addrs["shard"]), s.addrs["shard-ops"]}
}

// bound counts the machines of a cluster by provider.
func (l *look) bound(cluster string) map[string]int {
	l.t.Helper()
	a, err := l.read.ListMachines(l.t.Context(), connect.NewRequest(&pb.ListMachinesRequest{ClusterId: cluster}))
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range a.Msg.GetMachines() {
		if m.GetMachine().GetState() == pb.MachineState_MACHINE_STATE_CONFIGURED {
			out[m.GetProvider()]++
		}
	}
	return out
}

// explained is what is said of the need of a cluster, and whether it is met.
func (l *look) explained(cluster string) (met bool, text string) {
	l.t.Helper()
	stream, err := l.read.InspectNeeds(l.t.Context(), connect.NewRequest(&pb.InspectNeedsRequest{ClusterId: cluster}))
	if err != nil {
		l.t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if n := stream.Msg().GetNeed(); n != nil {
			met, text = n.GetSatisfied(), n.GetDetail().String()+": "+n.GetDetailText()
		}
	}
	if err := stream.Err(); err != nil {
		l.t.Fatal(err)
	}
	return met, text
}

// withheld is how many machines a metric says are withheld because their provider does not answer.
func (l *look) withheld() float64 {
	l.t.Helper()
	n, err := fixture.Metric(l.t.Context(), l.metrics, "bigfleet_shard_machines_withheld", `reason="provider_down"`)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// eventually asks until the answer is yes.
func (l *look) eventually(what string, f func() bool) {
	l.t.Helper()
	for end := time.Now().Add(2 * patience); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			met, text := l.explained("red")
			l.t.Fatalf("not so: %s; bound %v; the need is met: %v, %s", what, l.bound("red"), met, text)
		}
	}
}

// SHARD-14.15, SHARD-23.8: of four providers, each a process, the cheapest is killed. What is asked for comes from the next
// cheapest; what only the dead one could give is short, and the shard says so, and why, in its answer about the need and in its metrics. When the process
// is back, its slots are bought.
func TestTheCheapestProviderIsKilled(t *testing.T) {
	const each = 3
	s := newStageOf(t, []string{"--reconcile-interval", "1s"}, slots("0.1", each), slots("0.2", each), slots("0.3", each), slots("0.4", each))
	l := s.look()
	red := s.session("red")
	want := func(machines int) {
		t.Helper()
		unit := map[string]string{"cpu": "7"}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ack, _, err := red.rollup(ctx, []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": fmt.Sprint(7 * machines)}, MinUnit: unit, RowId: "web"}})
		if err != nil || !accepts(ack) {
			t.Fatalf("the roll-up: %v, %v", ack, err)
		}
	}

	want(1)
	l.eventually("the cheapest provider serves", func() bool { return l.bound("red")["provider"] == 1 })
	s.procs["provider"].Kill()
	want(1 + each) // two of the dead provider's would be cheaper
	asked := time.Now()
	l.eventually("the next cheapest serves", func() bool { return l.bound("red")["provider-2"] == each })
	t.Logf("served from the next cheapest after %.1f s", time.Since(asked).Seconds())
	if b := l.bound("red"); b["provider-3"]+b["provider-4"] > 0 {
		t.Errorf("dearer providers serve although a cheaper one has room: %v", b)
	}
	l.eventually("the need is met", func() bool { met, _ := l.explained("red"); return met })

	want(4*each - 1) // one more than the healthy ones have
	l.eventually("all healthy ones serve", func() bool { b := l.bound("red"); return b["provider-2"]+b["provider-3"]+b["provider-4"] == 3*each })
	l.eventually("the shortfall names the dead provider", func() bool {
		met, text := l.explained("red")
		return !met && strings.Contains(text, "provider provider")
	})
	_, text := l.explained("red")
	t.Log(text)
	l.eventually("a metric says what is withheld", func() bool { return l.withheld() >= each-1 })

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.procs["provider"].Start(ctx); err != nil {
		t.Fatal(err)
	}
	l.eventually("the provider that is back serves what was short", func() bool {
		met, _ := l.explained("red")
		return met && l.bound("red")["provider"] == 2
	})
	l.eventually("nothing is withheld", func() bool { return l.withheld() == 0 })
	s.unharmed()
}

// SHARD-6.6: a shard that starts while the cheaper of its providers does not answer says so, buys nothing again that may run there, and still serves
// Pods that find no Node from the other one.
func TestAShardStartsBesideADeadProvider(t *testing.T) {
	s := newStageOf(t, []string{"--reconcile-interval", "1s"}, slots("0.1", 3), slots("0.2", 3))
	l := s.look()
	needs := []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": "14"}, MinUnit: map[string]string{"cpu": "7"}, RowId: "web"}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	say := func(red *session) {
		t.Helper()
		if ack, _, err := red.rollup(ctx, needs); err != nil || !accepts(ack) {
			t.Fatalf("the roll-up: %v, %v", ack, err)
		}
	}
	say(s.session("red"))
	l.eventually("the cheap provider serves", func() bool { return l.bound("red")["provider"] == 2 })
	s.procs["provider"].Kill()
	s.procs["shard"].Kill()
	if err := s.procs["shard"].Start(ctx); err != nil {
		t.Fatal(err)
	}

	red := s.session("red", "unplaced-pods/1")
	needs[0].AggregateResources["cpu"] = "21"
	say(red)
	l.eventually("the need is unmet because of the dead provider", func() bool {
		met, text := l.explained("red")
		return !met && strings.Contains(text, "provider provider has not answered")
	})
	if b := l.bound("red"); b["provider-2"] > 0 {
		t.Errorf("bought again: %v", b)
	}
	waiting := &pb.UnplacedPods{Rows: []*pb.UnplacedRow{{RowId: "web", Pods: 1}}}
	if err := red.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: waiting}}); err != nil {
		t.Fatal(err)
	}
	l.eventually("the healthy one serves the Pod that waits", func() bool { return l.bound("red")["provider-2"] == 1 })
	if err := red.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.procs["provider"].Start(ctx); err != nil {
		t.Fatal(err)
	}
	l.eventually("the need is met", func() bool { met, _ := l.explained("red"); return met })
	if b := l.bound("red"); b["provider"] != 2 || b["provider-2"] != 1 {
		t.Errorf("in the end %v", b)
	}
	s.unharmed()
}
