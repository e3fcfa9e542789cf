package unplaced

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// OP-11.5: only a shortage that one more machine ends counts, by the scheduler's own message classes.
func TestShort(t *testing.T) {
	for message, want := range map[string]bool{
		"0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.": true,
		"0/5 nodes are available: 2 Insufficient cpu, 3 Insufficient memory.":                                                               true,
		"0/5 nodes are available: 2 Too many pods, 3 node(s) had untolerated taint {gpu: yes}.":                                             true,
		"0/5 nodes are available: 2 Insufficient example.com/gpu, 3 node(s) didn't match Pod's node affinity/selector.":                     true,
		"0/4 nodes are available: 1 Insufficient cpu, 3 node(s) were unschedulable.":                                                        true,
		"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.":                                                     false,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod anti-affinity rules.":                                      false,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict.":                                         true,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) did not have enough free storage.":                                          false,
		"0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.":                                            false,
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                                                        false,
		"0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.":                                                  false,
		"no nodes available to schedule pods":                                                                                               false,
		"running PreFilter plugin: rejected":                                                                                                false,
		"":                                                                                                                                  false,
	} {
		if got, _ := short(message, &request.Spec{}, bounds{}); got != want {
			t.Errorf("%q: %v, want %v", message, got, want)
		}
	}
}

func all(*pods.Pod) bool { return true }

func stuck(name string, since time.Time, message string) *pods.Pod {
	return pods.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: metav1.NewTime(since),
	}}}})
}

// OP-11.5, ENG-11.11: a Pod counts after 30 s, if its row was called satisfied and all machines behind the row are Ready.
func TestReport(t *testing.T) {
	const full = "0/1 nodes are available: 1 Insufficient cpu."
	now := time.Now()
	old := now.Add(-time.Minute)
	store := pods.New(nil, nil, nil)
	for i := range 3 {
		store.Set(stuck(fmt.Sprintf("fragmented-%d", i), old.Add(time.Duration(i)*time.Second), full))
	}
	store.Set(stuck("young", now.Add(-20*time.Second), full))
	store.Set(stuck("volume", old, "0/1 nodes are available: 1 node(s) had volume node affinity conflict."))
	store.Set(stuck("unmet", old, full))
	store.Set(stuck("missing", old, "no nodes available to schedule pods"))
	store.Set(stuck("joining", old, full))
	store.Set(stuck("foreign", old, full))
	store.Set(stuck("unsent", old, full)) // the shard has not received its request: its row is satisfied without it
	placed := stuck("placed", old, full)
	placed.Node = "n1"
	store.Set(placed)
	w := Watcher{Config{
		Pods: store, Confined: never, Counted: func(p *pods.Pod) bool { return p.Name != "unsent" }, Ahead: func(f func(row string)) { f("queue") }, Satisfied: func(row string) bool { return row != "unmet" && row != "missing" }, Missing: func(row string) bool { return row == "missing" }, Ready: func(row string) (time.Time, bool) { return time.Time{}, row != "joining" }, Nodes: func() int { return 9 },
		Request: func(p *pods.Pod) (*request.Request, string) {
			switch p.Name {
			case "foreign":
				return nil, ""
			case "unmet", "joining":
				return &request.Request{}, p.Name
			case "missing":
				return &request.Request{Spec: &request.Spec{}}, p.Name
			}
			return &request.Request{Spec: &request.Spec{Resources: []request.Amount{{Name: "cpu", Milli: 1500}}}}, "web"
		},
	}}
	got, events := w.unplaced(now)
	// SHARD-6.6: while a provider does not answer, the shard buys only for Pods that are reported. Their owners read that, and not that room is fragmented.
	if len(got.Rows) != 2 || got.Rows[0].RowId != "missing" || got.Rows[0].Pods != 1 || slices.ContainsFunc(events, func(e podEvent) bool { return e.pod.Name == "missing" }) {
		t.Fatalf("report %v, events %v", got, events)
	}
	got.Rows = got.Rows[1:]
	if got.Rows[0].RowId != "web" || got.Rows[0].Pods != 3 || got.Rows[0].Resources["cpu"] != "4500m" ||
		got.Rows[0].OldestSinceUnixNanos != metav1.NewTime(old).UnixNano() {
		t.Errorf("report %v", got)
	}
	// ENG-11.18: rows that ask for Pods without a node, and for requests ahead of their Pods.
	if want := []string{"joining", "missing", "queue", "unmet", "web"}; !got.UnboundStated || !slices.Equal(got.UnboundRowIds, want) {
		t.Errorf("unbound %v, want %v", got.UnboundRowIds, want)
	}
	store.Delete(&pods.Pod{ObjectMeta: metav1.ObjectMeta{UID: "missing"}})
	for i := range 3 {
		store.Delete(&pods.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("fragmented-%d", i))}})
	}
	if got := w.Report(now); len(got.Rows) != 0 {
		t.Errorf("report %v", got)
	}
}

// OP-11.5: a Pod whose place a Pod of its workload is about to leave does not count, unless that one does not end, ends much later, or is on a
// node that takes no Pods.
func TestPlacesThatComeFree(t *testing.T) {
	now := time.Now()
	owned := func(p *pods.Pod) *pods.Pod { p.Workload = "default/Deployment/web"; return p }
	for name, c := range map[string]struct {
		node string
		left time.Duration
		want int
	}{
		"ends soon":       {"n1", 20 * time.Second, 1},
		"does not end":    {"n1", -time.Minute, 2},
		"ends much later": {"n1", time.Hour, 2},
		"drained":         {"cordoned", 20 * time.Second, 2},
	} {
		store := pods.New(nil, nil, nil)
		for _, name := range []string{"a", "b"} {
			store.Set(owned(stuck(name, now.Add(-time.Minute), "0/1 nodes are available: 1 Insufficient cpu.")))
		}
		store.Set(owned(pods.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", UID: "old", DeletionTimestamp: new(metav1.NewTime(now.Add(c.left)))},
			Spec: corev1.PodSpec{NodeName: c.node}})))
		w := Watcher{Config{Pods: store, Counted: all, Confined: never, Ahead: none, Satisfied: func(string) bool { return true }, Missing: never, Nodes: func() int { return 1 },
			Ready: func(string) (time.Time, bool) { return time.Time{}, true }, TakesPods: func(node string) bool { return node == "n1" },
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &request.Spec{}}, "web" }}}
		got := 0
		for _, r := range w.Report(now).Rows {
			got += int(r.Pods)
		}
		if got != c.want {
			t.Errorf("%s: %d Pods are reported, want %d", name, got, c.want)
		}
		store.Delete(&pods.Pod{ObjectMeta: metav1.ObjectMeta{UID: "old"}})
		got = 0
		for _, r := range w.Report(now).Rows {
			got += int(r.Pods)
		}
		if want := map[bool]int{true: 1, false: 2}[c.node == "n1"]; got != want || len(store.Ending()) != 0 {
			t.Errorf("%s: %d Pods are reported once it is gone, want %d", name, got, want)
		}
	}
}

// OP-14.3: the owners of such Pods get an event, and those of Pods that wait for something else are not.
func TestOwnersGetEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pods.New(nil, nil, nil)
		store.Set(stuck("fragmented", time.Now(), "0/1 nodes are available: 1 Insufficient cpu."))
		store.Set(stuck("volume", time.Now(), "0/1 nodes are available: 1 node(s) had volume node affinity conflict."))
		notified := map[string]time.Duration{}
		start := time.Now()
		w := Watcher{Config{
			Pods: store, Counted: all, Confined: never, Ahead: none, Satisfied: func(string) bool { return true }, Missing: never, Ready: func(string) (time.Time, bool) { return time.Time{}, true }, Nodes: func() int { return 1 }, Heartbeat: time.Minute,
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &request.Spec{}}, "web" },
			Send:    func(*pb.UnplacedPods) {},
			Record: func(n events.Event) {
				if _, known := notified[n.Regarding.Name]; !known && n.Reason == ReasonFragmented && n.Warning {
					notified[n.Regarding.Name] = time.Since(start)
				}
			},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if at, ok := notified["fragmented"]; len(notified) != 1 || !ok || at < unschedulableFor || at > unschedulableFor+2*checkEvery {
			t.Errorf("notified %v", notified)
		}
	})
}

// OP-11.5: once the scheduler has seen every node that there is, Ready, a Pod of a covered row is reported two seconds after the
// last node of the row is Ready; an attempt that saw fewer nodes says nothing yet.
func TestCoveredRowsAreReportedAtOnce(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for name, c := range map[string]struct {
		message    string
		age, ready time.Duration
		want       int
	}{
		"seen by the scheduler":   {"0/3 nodes are available: 3 Insufficient cpu.", 2 * time.Second, 2 * time.Second, 1},
		"the last node is fresh":  {"0/3 nodes are available: 3 Insufficient cpu.", 10 * time.Second, 500 * time.Millisecond, 0},
		"an older attempt":        {"0/2 nodes are available: 2 Insufficient cpu.", 10 * time.Second, 10 * time.Second, 0},
		"it was not Ready":        {"0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 2 Insufficient cpu.", 10 * time.Second, 10 * time.Second, 0},
		"not for resources":       {"0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", time.Minute, time.Minute, 0},
		"an older attempt, later": {"0/2 nodes are available: 2 Insufficient cpu.", 30 * time.Second, 30 * time.Second, 1},
	} {
		store := pods.New(nil, nil, nil)
		store.Set(stuck("p", now.Add(-c.age), c.message))
		w := Watcher{Config{Pods: store, Counted: all, Confined: never, Ahead: none, Satisfied: func(string) bool { return true }, Missing: never, Nodes: func() int { return 3 },
			Ready:   func(string) (time.Time, bool) { return now.Add(-c.ready), true },
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &request.Spec{}}, "web" }}}
		if got := len(w.Report(now).Rows); got != c.want {
			t.Errorf("%s: %d rows, want %d", name, got, c.want)
		}
	}
}

// OP-11.5: a Pod with a limit per host lacks a host where each node holds its peers or lacks room; one with a hard spread lacks room in
// another domain; one with volumes lacks a node that can attach them. Nodes where it can never run do not count.
func TestPodsLackAMachine(t *testing.T) {
	const anti = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod anti-affinity rules. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
	const existing = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
	const ports = "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
	const spread = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints."
	zones := []v1alpha1.TopologySpread{{TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 1}}
	for _, c := range []struct {
		message string
		spec    request.Spec
		want    bool
	}{
		{anti, request.Spec{MaxPerHost: 1}, true},
		{anti, request.Spec{}, false},
		{existing, request.Spec{MaxPerHost: 1}, true},
		{existing, request.Spec{}, false},
		{ports, request.Spec{MaxPerHost: 1}, true},
		{ports, request.Spec{}, false},
		{spread, request.Spec{MaxPerHost: 2}, true},
		{spread, request.Spec{Spread: zones}, true},
		{spread, request.Spec{}, false},
		{"0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints (missing required label).", request.Spec{Spread: zones}, false},
		{"0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) didn't match PersistentVolume's node affinity.", request.Spec{}, true},
		{"0/2 nodes are available: 2 node(s) had volume node affinity conflict.", request.Spec{}, false},
		{"0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 node(s) didn't match pod anti-affinity rules.", request.Spec{MaxPerHost: 1}, true},
		{"0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims.", request.Spec{}, false},
	} {
		if got, _ := short(c.message, &c.spec, bounds{}); got != c.want {
			t.Errorf("%q with %+v: %v, want %v", c.message, c.spec, got, c.want)
		}
	}
	// A Pod with a host port that keeps away from its peers' zone, too: no host in these zones has room.
	byZone, _ := short(anti, &request.Spec{MaxPerHost: 1}, bounds{domains: true})
	byPort, _ := short(ports, &request.Spec{MaxPerHost: 1}, bounds{domains: true})
	if byZone || !byPort {
		t.Error("a Pod that keeps away from zones lacks hosts by its ports alone")
	}
}

// OP-11.5: a Pod that keeps away from the hosts of others, or that these keep from theirs, lacks a host where these have all that has room. One that keeps away from domains as well may lack a domain.
func TestPodsThatKeepAwayFromOthersLackAHost(t *testing.T) {
	const own, existing = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod anti-affinity rules.", "0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules."
	for _, c := range []struct {
		message string
		of      bounds
		want    bool
	}{{own, bounds{hosts: true}, true}, {own, bounds{hosts: true, domains: true}, false}, {own, bounds{}, false}, {existing, bounds{hosts: true}, false}, {existing, bounds{kept: true}, true}} {
		if got, _ := short(c.message, &request.Spec{}, c.of); got != c.want {
			t.Errorf("%q of %+v: %v, want %v", c.message, c.of, got, c.want)
		}
	}
}

// OP-11.5, OP-5.31: nodes outside the domains to which a row is confined are no nodes for its Pods, as those that its selectors exclude.
func TestPodsLackAMachineInTheirDomain(t *testing.T) {
	const away = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod affinity rules."
	for confined, want := range map[bool]bool{true: true, false: false} {
		if got, _ := short(away, &request.Spec{}, bounds{confined: confined}); got != want {
			t.Errorf("confined %v: %v, want %v", confined, got, want)
		}
	}
	if got, other := short("0/3 nodes are available: 3 node(s) didn't match pod affinity rules.", &request.Spec{}, bounds{confined: true}); got || other == "" {
		t.Error("a Pod whose domain has no node lacks nothing that another machine of its row would bring")
	}
}

func none(func(row string)) {}

func never(string) bool { return false }

// OP-14.3: a Pod of a covered row that no machine helps gets an event that says which of its fields keeps it waiting, as soon as the scheduler has seen every
// node. One that lacks room, and one whose row is short, get other sentences.
func TestPodsThatNoMachineHelpsGetEvents(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for message, want := range map[string]string{
		"0/3 nodes are available: 3 node(s) didn't match pod affinity rules.":                                                       "spec.affinity.podAffinity",
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod anti-affinity rules.":                              "spec.affinity.podAntiAffinity",
		"0/3 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules.":                                      "spec.affinity.podAntiAffinity",
		"0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.":                                          "spec.topologySpreadConstraints",
		"0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.":                                    "hostPort",
		"0/3 nodes are available: 3 node(s) had volume node affinity conflict. preemption: 0/3 nodes are available: 3 not helpful.": "spec.volumes",
		"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.":                                             "spec.nodeSelector",
		"0/3 nodes are available: 3 Insufficient cpu.":                                                                              "",
		"0/2 nodes are available: 2 node(s) didn't match pod affinity rules.":                                                       "", // it has not seen every node
		"no nodes available to schedule pods":                                                                                       "",
	} {
		store := pods.New(nil, nil, nil)
		store.Set(stuck("p", now.Add(-2*time.Second), message))
		store.Set(&pods.Pod{ObjectMeta: metav1.ObjectMeta{Name: "zonal", UID: "zonal"}, Node: "n", Domains: true}) // may keep others from its zone
		covered := true
		w := Watcher{Config{Pods: store, Counted: all, Confined: never, Ahead: none, Satisfied: func(string) bool { return covered }, Missing: never, Nodes: func() int { return 3 },
			Ready:   func(string) (time.Time, bool) { return now.Add(-2 * time.Second), true },
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &request.Spec{}}, "web" }}}
		got := ""
		if _, notified := w.unplaced(now); len(notified) > 0 {
			if got = notified[0].event.Message; notified[0].event.Reason != ReasonNotHelped {
				t.Errorf("%q: %v", message, notified[0].event)
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: said %q, want %q", message, got, want)
		}
		covered = false
		if _, notified := w.unplaced(now); len(notified) > 0 {
			t.Errorf("%q: notified %v, and the row is short", message, notified)
		}
	}
}
