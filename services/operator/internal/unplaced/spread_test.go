package unplaced

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// zoned is a Node in a zone; a name that begins with spot has the label for it.
func zoned(name, zone string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if zone != "" {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	if strings.HasPrefix(name, "spot") {
		n.Labels["spot"] = "yes"
	}
	return n
}

// OP-11.5b: a row says under which values of its first hard spread kube-scheduler puts no more of its Pods, which it counts as that does.
func TestFullDomains(t *testing.T) {
	app := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	over := func(skew, least int32) v1alpha1.TopologySpread {
		return v1alpha1.TopologySpread{TopologyKey: corev1.LabelTopologyZone, MaxSkew: skew, MinDomains: least, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: app("web")}
	}
	anyway, all := over(1, 0), over(1, 0)
	anyway.WhenUnsatisfiable, all.LabelSelector = corev1.ScheduleAnyway, nil
	racks := over(1, 0)
	racks.TopologyKey = "z.example.com/rack" // of no Node here
	spot := []corev1.NodeSelectorRequirement{{Key: "spot", Operator: corev1.NodeSelectorOpIn, Values: []string{"yes"}}}
	for name, c := range map[string]struct {
		run   string // Pods: app/node, "+" for another state of it
		spec  request.Spec
		label string // of the Pod that waits
		want  string
	}{
		"one each in two of three":        {run: "web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}, want: "a b"},
		"one each":                        {run: "web/n1 web/n2 web/n3", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}},
		"two in one":                      {run: "web/n1 web/n1 web/n2 web/n3", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}, want: "a"},
		"a skew of two":                   {run: "web/n1 web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(2, 0)}}, want: "a"},
		"two nodes of a zone":             {run: "web/n3 web/spot-3 web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}, want: "c"},
		"others do not count":             {run: "db/n1 db/n2 web/n1+other-namespace", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}},
		"nor what ends or has ended":      {run: "web/n1+ends web/n2+done web/n3", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}, want: "c"},
		"nor a node without a zone":       {run: "web/bare web/bare", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}},
		"nor nodes that it does not want": {run: "web/n1 web/n2", spec: request.Spec{Requirements: spot, Spread: []v1alpha1.TopologySpread{over(1, 0)}}},
		"the nodes that it wants":         {run: "web/spot-3", spec: request.Spec{Requirements: spot, Spread: []v1alpha1.TopologySpread{over(1, 0)}}},
		"fewer zones than it wants":       {run: "web/n1 web/n2 web/n3", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 4)}}, want: "a b c"},
		"its own kind elsewhere":          {run: "web/n1", spec: request.Spec{Spread: []v1alpha1.TopologySpread{over(1, 0)}}, label: "db"},
		"a soft one":                      {run: "web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{anyway}}},
		"without a selector":              {run: "web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{all}}},
		"the first of two keys":           {run: "web/n1 web/n2", spec: request.Spec{Spread: []v1alpha1.TopologySpread{racks, over(1, 0)}}},
	} {
		store := pods.New(nil, nil, nil)
		for i, text := range strings.Fields(c.run) {
			text, state, _ := strings.Cut(text, "+")
			of, node, _ := strings.Cut(text, "/")
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Labels: labels.Set{"app": of}}, Spec: corev1.PodSpec{NodeName: node}}
			switch state {
			case "other-namespace":
				p.Namespace = "other"
			case "ends":
				p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			case "done":
				p.Status.Phase = corev1.PodSucceeded
			}
			store.Set(pods.Of(p))
		}
		if c.label == "" {
			c.label = "web"
		}
		waits := stuck("waits", time.Now().Add(-time.Minute), "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match pod topology spread constraints.")
		waits.LabelSet = pods.NewLabelSet(map[string]string{"app": c.label})
		store.Set(waits)
		w := Watcher{Config{
			Pods: store, Counted: func(*pods.Pod) bool { return true }, Confined: never, Ahead: none, Satisfied: func(string) bool { return true }, Missing: never,
			Ready: func(string) (time.Time, bool) { return time.Time{}, true }, Nodes: func() int { return 4 },
			AllNodes: func() []*corev1.Node {
				return []*corev1.Node{zoned("n1", "a"), zoned("n2", "b"), zoned("n3", "c"), zoned("spot-3", "c"), zoned("bare", "")}
			},
			Request: func(*pods.Pod) (*request.Request, string) { return &request.Request{Spec: &c.spec}, "web" },
		}}
		rows := w.Report(time.Now()).Rows
		if len(c.spec.Spread) == 0 || len(rows) != 1 || !slices.Equal(rows[0].FullDomains, strings.Fields(c.want)) {
			t.Errorf("%s: %v, want %q", name, rows, c.want)
		}
	}
}
