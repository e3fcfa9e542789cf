package unplaced

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// OP-11.5: only a shortage of resources counts, by the scheduler's own message classes.
func TestShort(t *testing.T) {
	for message, want := range map[string]bool{
		"0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.": true,
		"0/5 nodes are available: 2 Insufficient cpu, 3 Insufficient memory.":                                                               true,
		"0/5 nodes are available: 2 Too many pods, 3 node(s) had untolerated taint {gpu: yes}.":                                             true,
		"0/5 nodes are available: 2 Insufficient example.com/gpu, 3 node(s) didn't match Pod's node affinity/selector.":                     true,
		"0/4 nodes are available: 1 Insufficient cpu, 3 node(s) were unschedulable.":                                                        true,
		"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.":                                                     false,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod anti-affinity rules.":                                      false,
		"0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict.":                                         false,
		"0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports.":                                            false,
		"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                                                        false,
		"0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.":                                                  false,
		"no nodes available to schedule pods":                                                                                               false,
		"running PreFilter plugin: rejected":                                                                                                false,
		"":                                                                                                                                  false,
	} {
		if got := short(message); got != want {
			t.Errorf("%q: %v, want %v", message, got, want)
		}
	}
}

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
	store := pods.New(nil, nil)
	for i := range 3 {
		store.Set(stuck(fmt.Sprintf("fragmented-%d", i), old.Add(time.Duration(i)*time.Second), full))
	}
	store.Set(stuck("young", now.Add(-20*time.Second), full))
	store.Set(stuck("volume", old, "0/1 nodes are available: 1 node(s) had volume node affinity conflict."))
	store.Set(stuck("unmet", old, full))
	store.Set(stuck("joining", old, full))
	store.Set(stuck("foreign", old, full))
	placed := stuck("placed", old, full)
	placed.Node = "n1"
	store.Set(placed)
	w := Watcher{Config{
		Pods: store, Satisfied: func(row string) bool { return row != "unmet" }, Ready: func(row string) bool { return row != "joining" },
		Request: func(p *pods.Pod) (*request.Request, string) {
			switch p.Name {
			case "foreign":
				return nil, ""
			case "unmet", "joining":
				return &request.Request{}, p.Name
			}
			return &request.Request{Spec: &request.Spec{Resources: []request.Amount{{Name: "cpu", Milli: 1500}}}}, "web"
		},
	}}
	got := w.Report(now)
	if len(got.Rows) != 1 || got.Rows[0].RowId != "web" || got.Rows[0].Pods != 3 || got.Rows[0].Resources["cpu"] != "4500m" ||
		got.Rows[0].OldestSinceUnixNanos != metav1.NewTime(old).UnixNano() {
		t.Errorf("report %v", got)
	}
	for i := range 3 {
		store.Delete(&pods.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("fragmented-%d", i))}})
	}
	if got := w.Report(now); len(got.Rows) != 0 {
		t.Errorf("report %v", got)
	}
}

// OP-14.3: the owners of such Pods are told, and those of Pods that wait for something else are not.
func TestOwnersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pods.New(nil, nil)
		store.Set(stuck("fragmented", time.Now(), "0/1 nodes are available: 1 Insufficient cpu."))
		store.Set(stuck("volume", time.Now(), "0/1 nodes are available: 1 node(s) had volume node affinity conflict."))
		told := map[string]time.Duration{}
		start := time.Now()
		w := Watcher{Config{
			Pods: store, Satisfied: func(string) bool { return true }, Ready: func(string) bool { return true }, Heartbeat: time.Minute,
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &request.Spec{}}, "web" },
			Send:    func(*pb.UnplacedPods) {},
			Note: func(n notes.Note) {
				if _, known := told[n.About.Name]; !known && n.Reason == ReasonFragmented && n.Warning {
					told[n.About.Name] = time.Since(start)
				}
			},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if at, ok := told["fragmented"]; len(told) != 1 || !ok || at < heldFor || at > heldFor+2*lookEvery {
			t.Errorf("told %v", told)
		}
	})
}
