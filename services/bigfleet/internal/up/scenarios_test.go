package up_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
)

// Each story is played step by step, the next step once the one before shows what a viewer is promised: nothing here waits for
// the scenario's own times, so it is true on a slow machine too.

// story is a scenario in a world of its own.
type story struct {
	t     *testing.T
	w     *up.World
	steps []up.Step
	next  int
}

func play(t *testing.T, name string, clusters int) *story {
	t.Helper()
	t.Parallel()
	s, err := up.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	w, _ := start(t, up.Config{Clusters: clusters})
	st := &story{t: t, w: w, steps: s.Steps}
	st.until("every cluster is heard", func() (bool, string) {
		s := st.status()
		return s.GetReady() && int(s.GetSessions()) == clusters, fmt.Sprint(s.GetNotReadyReasons())
	})
	t.Cleanup(func() {
		if !t.Failed() && st.next != len(st.steps) {
			t.Errorf("%d of %d steps were played", st.next, len(st.steps))
		}
	})
	return st
}

// step plays the next step.
func (s *story) step() {
	s.t.Helper()
	if err := s.steps[s.next].Do(s.t.Context(), s.w); err != nil {
		s.t.Fatalf("%q: %v", s.steps[s.next].Message, err)
	}
	s.next++
}

const patience = 2 * time.Minute

func (s *story) until(what string, seen func() (bool, string)) {
	s.t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var ok bool
		if ok, last = seen(); ok {
			return
		}
	}
	s.t.Fatalf("never: %s; last: %s", what, last)
}

func (s *story) status() *pb.GetStatusResponse {
	got, err := s.w.Read.GetStatus(s.t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
	if err != nil {
		return nil // away, as in the story of the restart
	}
	return got.Msg
}

// runs waits until these many Pods run, by cluster.
func (s *story) runs(want map[string]int) {
	s.t.Helper()
	s.until(fmt.Sprint("Pods that run: ", want), func() (bool, string) {
		got := running(s.t, s.w)
		return maps.Equal(got, want), fmt.Sprint(got, " ", s.status().GetMachinesByState())
	})
}

func (s *story) cluster(id string) *up.Cluster {
	i := slices.IndexFunc(s.w.Clusters, func(c *up.Cluster) bool { return c.ID() == id })
	return s.w.Clusters[i]
}

// nodes are those of a cluster by name.
func (s *story) nodes(cluster string) map[string]*corev1.Node {
	s.t.Helper()
	list, err := s.cluster(cluster).Client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]*corev1.Node{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// pods are those of a Deployment.
func (s *story) pods(cluster, app string) []corev1.Pod {
	s.t.Helper()
	list, err := s.cluster(cluster).Client.CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// causes counts the actions of the decision log by kind and cause.
func (s *story) causes() map[string]int {
	s.t.Helper()
	got, err := s.w.Read.GetMachineHistory(s.t.Context(), connect.NewRequest(&pb.GetMachineHistoryRequest{PageSize: 1000}))
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range got.Msg.GetRecords() {
		if r.GetType() == pb.RecordType_RECORD_TYPE_STARTED {
			out[strings.ToLower(strings.TrimPrefix(r.GetKind().String(), "ACTION_KIND_"))+" "+r.GetCause()]++
		}
	}
	return out
}

// user-asks 11: a little demand in every cluster, then no changes.
func TestSteadyIsSteady(t *testing.T) {
	s := play(t, "steady", 3)
	s.step()
	s.runs(map[string]int{"red": 6, "blue": 6, "green": 6})
	before, bought := s.causes(), s.status().GetCycle()
	s.until("ten cycles later", func() (bool, string) { n := s.status().GetCycle(); return n > bought+1, fmt.Sprint(n) })
	if after := s.causes(); !maps.Equal(after, before) {
		t.Errorf("nothing changed, but actions did: %v, then %v", before, after)
	}
}

// The burst runs, and what is unneeded afterwards is returned.
func TestBurstComesAndGoes(t *testing.T) {
	s := play(t, "burst", 2)
	s.step()
	s.runs(map[string]int{"red": 4, "blue": 4})
	calm := len(s.nodes("red"))
	s.step()
	s.runs(map[string]int{"red": 64, "blue": 4})
	if n := len(s.nodes("red")); n <= calm {
		t.Errorf("60 Pods more on %d Nodes, which were there before", n)
	}
	s.step()
	s.runs(map[string]int{"red": 4, "blue": 4})
	s.until("the machines are given back", func() (bool, string) { n := len(s.nodes("red")); return n == calm, fmt.Sprint(n) })
	if c := s.causes(); c["reclaim phase3.excess"] == 0 {
		t.Errorf("nothing was returned as unneeded: %v", c)
	}
}

// user-asks 13, ENG-12: what is urgent takes from what is not, no more than it needs, and gives it back.
func TestPriorityClash(t *testing.T) {
	s := play(t, "priority", 2)
	s.step()
	s.runs(map[string]int{"red": 720, "blue": 0})
	if free := s.status().GetMachinesByState()["MACHINE_STATE_SPECULATIVE"]; free != 0 {
		t.Errorf("%d machines are still to be had: the batch does not fill the fleet", free)
	}
	s.step()
	s.until("the urgent Pods run", func() (bool, string) { got := running(t, s.w); return got["blue"] == 24, fmt.Sprint(got, s.causes()) })
	if got := running(t, s.w)["red"]; got < 600 || got > 720-24 {
		t.Errorf("%d Pods of the batch still run: 24 urgent ones need three or four machines", got)
	}
	if c := s.causes(); c["preempt phase2.inversion"] == 0 {
		t.Errorf("nothing was preempted: %v", c)
	}
	s.step()
	s.runs(map[string]int{"red": 720, "blue": 0})
}

// ENG-4.12, ENG-11, OP-5.22: every size of Pod is counted in whole Pods, and what one size leaves of its machines serves the others.
func TestSizesShareMachines(t *testing.T) {
	s := play(t, "sizes", 2)
	s.step()
	s.runs(map[string]int{"red": 6, "blue": 0})
	if n := len(s.nodes("red")); n != 6 {
		t.Errorf("%d Nodes for 6 Pods of which each fills more than half of one", n)
	}
	s.step()
	s.runs(map[string]int{"red": 10, "blue": 0})
	s.step()
	s.runs(map[string]int{"red": 20, "blue": 0})
	// The Pods ran before the shard heard of them. It counts them on what the large ones leave, and buys nothing.
	want := map[string]string{"5": "30", "2": "8", "1": "10"}
	s.until("a row for each size, and none is short", func() (bool, string) {
		rows, met := s.rowsBySize("red")
		return met && maps.Equal(rows, want), fmt.Sprint(rows, met)
	})
	if n := len(s.nodes("red")); n != 6 {
		t.Errorf("%d Nodes: the smaller Pods had room on the 6 that were there", n)
	}
	if c := s.causes(); c["provision phase1.speculative"] != 6 {
		t.Errorf("machines were bought for small Pods: %v", c)
	}
}

// rowsBySize are the cpus that the rows of a cluster ask for, by those of one Pod, and whether machines that run cover all of them.
func (s *story) rowsBySize(cluster string) (map[string]string, bool) {
	s.t.Helper()
	got, err := s.w.Read.InspectNeeds(s.t.Context(), connect.NewRequest(&pb.InspectNeedsRequest{ClusterId: cluster}))
	if err != nil {
		s.t.Fatal(err)
	}
	rows, met := map[string]string{}, true
	for got.Receive() {
		if n := got.Msg().GetNeed(); n != nil {
			rows[n.GetNeed().GetMinUnit()["cpu"]] = n.GetNeed().GetAggregateResources()["cpu"]
			met = met && n.GetStatus() == pb.NeedState_NEED_STATE_MET
		}
	}
	if err := got.Err(); err != nil {
		s.t.Fatal(err)
	}
	return rows, met
}

// user-asks 19: the gang sits in one rack.
func TestGangSharesARack(t *testing.T) {
	s := play(t, "gang", 2)
	s.step()
	s.runs(map[string]int{"red": 12, "blue": 0})
	nodes, racks := s.nodes("red"), map[string]bool{}
	for _, p := range s.pods("red", "train") {
		racks[nodes[p.Spec.NodeName].Labels["topology.bigfleet/rack"]] = true
	}
	if len(racks) != 1 {
		t.Errorf("the gang sits in %d racks: %v", len(racks), racks)
	}
}

// More is asked for than there is: everything serves, and what is short says so.
func TestSaturate(t *testing.T) {
	s := play(t, "saturate", 2)
	s.step()
	s.until("every machine that fits serves, and needs are short", func() (bool, string) {
		st := s.status()
		return st.GetMachinesByState()["MACHINE_STATE_SPECULATIVE"] == 0 && st.GetUnsatisfiedNeeds() > 0, fmt.Sprint(st.GetMachinesByState(), st.GetUnsatisfiedNeeds())
	})
	s.until("Pods wait although all machines have joined", func() (bool, string) {
		got := running(t, s.w)
		return got["red"]+got["blue"] >= 170, fmt.Sprint(got)
	})
}

// user-asks 14: sold out, the next best is taken, each pool is tried once and remembered with a time; then they are back.
func TestStockOut(t *testing.T) {
	s := play(t, "stockout", 2)
	s.step()
	s.runs(map[string]int{"red": 4, "blue": 4})
	s.step()
	s.step()
	s.runs(map[string]int{"red": 44, "blue": 4})
	onDemand := 0
	for _, p := range s.pods("red", "more") {
		if node := s.nodes("red")[p.Spec.NodeName]; strings.HasPrefix(node.Name, "demo-ondemand-") {
			onDemand++
		}
	}
	if onDemand < 30 {
		t.Errorf("%d of 40 Pods more run on machines bought on demand; spot machines are sold out", onDemand)
	}
	pools := s.status().GetProviders()[0].GetStockedOutPools()
	if len(pools) == 0 {
		t.Error("status names no pool that is out of stock")
	}
	for _, p := range pools {
		if p.GetRetryAtUnixNanos() == 0 {
			t.Errorf("pool %v does not say when it is tried again", p)
		}
	}
	refused := func() (n int) {
		for _, e := range s.w.Cloud.Journal("", 0, 10_000) {
			if e.GetCall() == "Create" && !e.GetEffect() {
				n++
			}
		}
		return n
	}
	tried, cycle := refused(), s.status().GetCycle()
	s.until("a cycle more", func() (bool, string) { n := s.status().GetCycle(); return n > cycle, fmt.Sprint(n) })
	if again := refused(); again != tried {
		t.Errorf("%d purchases were refused, then %d: the pools are not remembered", tried, again)
	}
	s.step()
	for _, p := range s.w.Cloud.Pools() {
		if p.Stock == 0 && p.Hosts < p.Quota {
			t.Errorf("pool %v is not back", p.PoolKey)
		}
	}
}

// user-asks 10: the cloud takes machines back with a notice; the work runs again, elsewhere, and the machines are gone.
func TestSpotStorm(t *testing.T) {
	s := play(t, "spot", 2)
	s.step()
	s.runs(map[string]int{"red": 16, "blue": 16})
	before := map[string]string{}
	for _, h := range s.w.Cloud.Hosts() {
		before[h.Machine] = h.Cluster
	}
	s.step()
	gone := func() (n int) {
		left := map[string]bool{}
		for _, h := range s.w.Cloud.Hosts() {
			left[h.Machine] = true
		}
		for m := range before {
			if !left[m] {
				n++
			}
		}
		return n
	}
	s.until("hosts are taken back", func() (bool, string) { return gone() > 0, fmt.Sprint(before) })
	s.runs(map[string]int{"red": 16, "blue": 16})
	s.until("no Pod is on a Node whose host is gone", func() (bool, string) {
		alive := map[string]bool{}
		for _, h := range s.w.Cloud.Hosts() {
			alive[h.Machine] = true
		}
		for _, c := range []string{"red", "blue"} {
			for _, p := range s.pods(c, "web") {
				if !alive[p.Spec.NodeName] {
					return false, p.Name + " on " + p.Spec.NodeName
				}
			}
		}
		return true, ""
	})
}

// user-asks 17: the drain that a budget blocks is seen with the budget's name, and the Pods are not disturbed.
func TestBudgetBlocksADrain(t *testing.T) {
	s := play(t, "budget", 2)
	s.step()
	s.runs(map[string]int{"red": 12, "blue": 0})
	uids := map[string]bool{}
	for _, p := range s.pods("red", "guarded") {
		uids[string(p.UID)] = true
	}
	s.step()
	s.until("the blocking budget is named, with a deadline", func() (bool, string) {
		for _, d := range s.status().GetDrains() {
			if strings.Contains(fmt.Sprint(d.GetBlockingBudgets()), "guarded") && d.GetPodsLeft() == 1 && d.GetDeadlineUnixNanos() > 0 {
				return true, ""
			}
		}
		return false, fmt.Sprint(s.status().GetDrains())
	})
	undisturbed := 0
	for _, p := range s.pods("red", "guarded") {
		if uids[string(p.UID)] && p.DeletionTimestamp == nil {
			undisturbed++
		}
	}
	if undisturbed != 12 {
		t.Errorf("%d of 12 guarded Pods were left alone", undisturbed)
	}
	s.step()
	s.until("the urgent Pods run once the budget lets go", func() (bool, string) {
		got := running(t, s.w)
		return got["blue"] == 2 && got["red"] == 10, fmt.Sprint(got)
	})
}

// OPS-5.6: the shard dies; no Pod and no Node goes, and back again it drains nothing.
func TestRestart(t *testing.T) {
	s := play(t, "restart", 2)
	s.step()
	s.runs(map[string]int{"red": 8, "blue": 8})
	before, nodes := s.causes(), slices.Sorted(maps.Keys(s.nodes("red")))
	s.step()
	s.until("the shard is away", func() (bool, string) { return s.status() == nil, "it answers" })
	if got := running(t, s.w); got["red"] != 8 || !slices.Equal(slices.Sorted(maps.Keys(s.nodes("red"))), nodes) {
		t.Errorf("without the shard: %v", got)
	}
	s.step()
	s.until("the shard is back and has heard all", func() (bool, string) {
		st := s.status()
		return st.GetReady() && st.GetSessions() == 2 && st.GetNeeds() == 2 && st.GetUnsatisfiedNeeds() == 0, fmt.Sprint(st.GetSessions(), st.GetNeeds())
	})
	if after := s.causes(); !maps.Equal(after, before) {
		t.Errorf("actions over the restart: %v, then %v", before, after)
	}
	if now := slices.Sorted(maps.Keys(s.nodes("red"))); !slices.Equal(now, nodes) {
		t.Errorf("Nodes over the restart: %v, then %v", nodes, now)
	}
}
