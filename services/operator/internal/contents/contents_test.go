package contents

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// model is what the Tracker was given, kept plainly.
type model struct {
	pods      map[types.UID]*pods.Pod
	budgets   map[types.UID]*policyv1.PodDisruptionBudget
	penalties map[types.UID]int64
}

// recount is what the nodes hold, counted from nothing.
func (m *model) recount() map[string]Contents {
	out := map[string]Contents{}
	for _, p := range m.pods {
		if p.Node == "" || !pods.Evictable(p) {
			continue
		}
		c := out[p.Node]
		c.Pods++
		if p.DeletionTimestamp == nil {
			c.CostCents += 1 + (m.penalties[p.UID]+9)/10
			blocked := pods.Protected(p)
			for _, b := range m.budgets {
				s, _ := metav1.LabelSelectorAsSelector(b.Spec.Selector)
				blocked = blocked || b.Namespace == p.Namespace && b.Status.DisruptionsAllowed <= 0 && s.Matches(labelsOf(p))
			}
			if blocked {
				c.Protected++
			}
		}
		out[p.Node] = c
	}
	return out
}

type labelsOfPod map[string]string

func labelsOf(p *pods.Pod) labelsOfPod               { return p.LabelSet.Labels() }
func (l labelsOfPod) Has(k string) bool              { _, ok := l[k]; return ok }
func (l labelsOfPod) Get(k string) string            { return l[k] }
func (l labelsOfPod) Lookup(k string) (string, bool) { v, ok := l[k]; return v, ok }

// OP-11.6: after any history of Pods, budgets and penalties, the counters equal a recount.
func TestContentsEqualARecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changed := map[string]bool{}
		tracker := New(func(node string) { changed[node] = true })
		m := &model{map[types.UID]*pods.Pod{}, map[types.UID]*policyv1.PodDisruptionBudget{}, map[types.UID]int64{}}
		pick := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := m.recount()
			uid := types.UID(fmt.Sprint("p", pick("pod", 6)))
			switch pick("kind", 5) {
			case 0, 1:
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: fmt.Sprint("ns", pick("namespace", 2)),
					Labels: map[string]string{"app": fmt.Sprint(pick("app", 3))}}}
				if old := m.pods[uid]; old != nil {
					p.Namespace = old.Namespace
				}
				p.Spec.NodeName = []string{"", "a", "b"}[pick("node", 3)]
				if old := m.pods[uid]; old != nil && old.Node != "" {
					p.Spec.NodeName = old.Node
				}
				p.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded}[pick("phase", 3)]
				if pick("leaves", 4) == 0 {
					p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				}
				switch pick("mark", 4) {
				case 0:
					p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: "true"}
				case 1:
					p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
				}
				now := pods.Of(p)
				tracker.SetPod(m.pods[uid], now)
				m.pods[uid] = now
			case 2:
				if old := m.pods[uid]; old != nil {
					tracker.SetPod(old, nil)
					delete(m.pods, uid)
					delete(m.penalties, uid)
				}
			case 3:
				id := types.UID(fmt.Sprint("b", pick("budget", 2)))
				if old := m.budgets[id]; old != nil && pick("delete", 3) == 0 {
					tracker.DeleteBudget(old)
					delete(m.budgets, id)
					break
				}
				b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{UID: id, Namespace: fmt.Sprint("ns", id[1:])},
					Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(pick("selects", 3))}}},
					Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(pick("allowed", 2))}}
				tracker.SetBudget(b)
				m.budgets[id] = b
			case 4:
				m.penalties[uid] = int64(pick("penalty", 3)) * 1505
				tracker.SetPenalty(uid, m.penalties[uid])
			}
			after := m.recount()
			for _, node := range []string{"a", "b"} {
				got := tracker.Of(node)
				if (got.Pods == 0) == got.EmptySince.IsZero() {
					t.Fatalf("%s: %+v", node, got)
				}
				if got.EmptySince = (time.Time{}); got != after[node] {
					t.Fatalf("%s holds %+v, a recount says %+v", node, got, after[node])
				}
				if before[node] != after[node] && !changed[node] {
					t.Fatalf("%s changed from %+v to %+v and nothing was called", node, before[node], after[node])
				}
			}
			clear(changed)
		}
		for _, p := range m.pods {
			tracker.SetPod(p, nil)
		}
		if len(tracker.groups)+len(tracker.counted)+len(tracker.nodes)-tracker.emptyNodes() != 0 {
			t.Fatalf("%d groups and %d Pods are left", len(tracker.groups), len(tracker.counted))
		}
	})
}

func (t *Tracker) emptyNodes() (n int) {
	for _, c := range t.nodes {
		if c.Pods == 0 {
			n++
		}
	}
	return n
}
