package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

func node(name, label, provider string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: provider}}
	if label != "" {
		n.Labels = map[string]string{v1alpha1.LabelMachineID: label}
	}
	return n
}

// OP-10.1: the rules in their order. OP-10.5, scenarios 35, 36: what is ambiguous belongs to no machine.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		machines []Machine
		nodes    []*corev1.Node
		want     string // of machine m1
		how      Match
	}{
		"nothing":                   {[]Machine{{ID: "m1"}}, nil, "", None},
		"by label":                  {[]Machine{{ID: "m1"}}, []*corev1.Node{node("n", "m1", "")}, "n", ByLabel},
		"by label, never heard of":  {nil, []*corev1.Node{node("n", "m1", "")}, "n", ByLabel},
		"by provider id":            {[]Machine{{ID: "m1", ProviderID: "p1"}}, []*corev1.Node{node("n", "", "p1")}, "n", ByProvider},
		"by provider id of AWS":     {[]Machine{{ID: "m1", ProviderID: "aws:///us-east-1a/i-0abc"}}, []*corev1.Node{node("ip-10-0-0-1.ec2.internal", "", "aws:///us-east-1a/i-0abc")}, "ip-10-0-0-1.ec2.internal", ByProvider},
		"by provider id of Hetzner": {[]Machine{{ID: "m1", ProviderID: "hcloud://4711"}}, []*corev1.Node{node("a", "", "hcloud://471"), node("b", "", "hcloud://4711")}, "b", ByProvider},
		"another instance of AWS":   {[]Machine{{ID: "m1", ProviderID: "aws:///us-east-1a/i-0abc"}}, []*corev1.Node{node("n", "", "aws:///us-east-1a/i-0abd")}, "", None},
		"by the shard's name":       {[]Machine{{ID: "m1", NodeName: "n"}}, []*corev1.Node{node("n", "", "")}, "n", ByName},
		"by id":                     {[]Machine{{ID: "m1"}}, []*corev1.Node{node("m1", "", "")}, "m1", ByID},
		"by id, never heard of":     {nil, []*corev1.Node{node("m1", "", "")}, "", None},
		"a control plane by the shard's name": {[]Machine{{ID: "m1", NodeName: "n"}}, []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n",
			Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}}, "", None},
		"label before provider id, one node":                      {[]Machine{{ID: "m1", ProviderID: "p1"}}, []*corev1.Node{node("n", "m1", "p1")}, "n", ByLabel},
		"provider ids of other formats do not contradict":         {[]Machine{{ID: "m1", ProviderID: "i-1"}}, []*corev1.Node{node("n", "m1", "aws:///a/i-1")}, "n", ByLabel},
		"two nodes with the label":                                {[]Machine{{ID: "m1"}}, []*corev1.Node{node("a", "m1", ""), node("b", "m1", "")}, "", Ambiguous},
		"label and provider id on two nodes":                      {[]Machine{{ID: "m1", ProviderID: "p1"}}, []*corev1.Node{node("a", "m1", ""), node("b", "", "p1")}, "", Ambiguous},
		"a node that is m2 claims to be m1":                       {[]Machine{{ID: "m1", ProviderID: "p1"}, {ID: "m2", ProviderID: "p2"}}, []*corev1.Node{node("evil", "m1", "p2")}, "", Ambiguous},
		"m1's node claims to be m2":                               {[]Machine{{ID: "m1", ProviderID: "p1"}, {ID: "m2", ProviderID: "p2"}}, []*corev1.Node{node("a", "m2", "p1")}, "", Ambiguous},
		"a node of that name is another's":                        {[]Machine{{ID: "m1", NodeName: "n"}}, []*corev1.Node{node("n", "m9", "")}, "", Ambiguous},
		"a node named like the machine has another's provider id": {[]Machine{{ID: "m1"}, {ID: "m2", ProviderID: "p2"}}, []*corev1.Node{node("m1", "", "p2")}, "", Ambiguous},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(func([]string) {})
			for _, m := range c.machines {
				r.Set(m)
			}
			for _, n := range c.nodes {
				r.SetNode(n)
			}
			n, how := r.Find("m1")
			got := ""
			if n != nil {
				got = n.Name
			}
			if got != c.want || how != c.how {
				t.Errorf("found %q by %d, want %q by %d", got, how, c.want, c.how)
			}
		})
	}
}

// OP-10.4: an entry of a reclaim instruction is a machine id first, then a node name. OP-10.7: a Node that only the entry connects with a
// machine is no machine of ours.
func TestResolve(t *testing.T) {
	r := New(func([]string) {})
	r.Set(Machine{ID: "m1", ProviderID: "p1"})
	r.SetNode(node("n1", "m1", "p1"))
	r.SetNode(node("stranger", "", ""))
	r.SetNode(node("labelled", "m9", ""))
	how := map[string]Match{"stranger": Foreign, "unowned": None, "m1": ByLabel, "n1": ByLabel, "labelled": ByLabel}
	for entry, want := range map[string]string{"m1": "m1 n1", "n1": "m1 n1", "stranger": "stranger stranger", "labelled": "labelled labelled", "unowned": "unowned -"} {
		id, n, by := r.Resolve(entry)
		if by != how[entry] {
			t.Errorf("%s is found by %d, want %d", entry, by, how[entry])
		}
		name := "-"
		if n != nil {
			name = n.Name
		}
		if got := id + " " + name; got != want {
			t.Errorf("%s: %s, want %s", entry, got, want)
		}
	}
}

// OP-10.2: ids that are no legal label values stand as a hash.
func TestLabelValue(t *testing.T) {
	for id, hashed := range map[string]bool{"m6i-eu-1a-17": false, "eu/1a/17": true, strings.Repeat("x", 64): true, strings.Repeat("x", 63): false, "": true, "a b": true} {
		v := LabelValue(id)
		if (v != id) != hashed || hashed && (!strings.HasPrefix(v, "h-") || len(v) != 34) {
			t.Errorf("%q stands as %q", id, v)
		}
	}
}

// The indexes never differ from what is known, whatever the order of changes: a registry that saw a history answers like
// one that saw the end of it only.
func TestIndexesFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machines, nodes := map[string]Machine{}, map[string]*corev1.Node{}
		r := New(func([]string) {})
		pick := func(kind string) string { return fmt.Sprintf("%s%d", kind, rapid.IntRange(0, 3).Draw(t, kind)) }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				m := Machine{ID: pick("m"), ProviderID: pick("p"), NodeName: pick("n")}
				machines[m.ID] = m
				r.Set(m)
			case 1:
				id := pick("m")
				delete(machines, id)
				r.Forget(id)
			case 2:
				n := node(pick("n"), rapid.SampledFrom([]string{"", "m0", "m1"}).Draw(t, "label"), rapid.SampledFrom([]string{"", "p0", "p1"}).Draw(t, "provider"))
				nodes[n.Name] = n
				r.SetNode(n)
			case 3:
				name := pick("n")
				delete(nodes, name)
				r.DeleteNode(name)
			}
			fresh := New(func([]string) {})
			for _, id := range slices.Sorted(maps.Keys(machines)) {
				fresh.Set(machines[id])
			}
			for _, n := range nodes {
				fresh.SetNode(n)
			}
			for i := range 4 {
				id := fmt.Sprintf("m%d", i)
				a, howA := r.Find(id)
				b, howB := fresh.Find(id)
				if a != b || howA != howB {
					t.Fatalf("%s: %v %d, a fresh registry says %v %d", id, a, howA, b, howB)
				}
			}
		}
	})
}

// OP-3.1: the cache keeps of a Node what finds its machine, its readiness and its drain.
func TestStrip(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{v1alpha1.LabelMachineID: "m", "zone": "a"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		Annotations: map[string]string{v1alpha1.AnnotationDrain: "{}", v1alpha1.LabelMachineID: "m", "large": "text"},
	}, Spec: corev1.NodeSpec{ProviderID: "p", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}}}
	n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.BootID = "v1.36.3", "b"
	n.Status.Conditions = []corev1.NodeCondition{{Type: "DiskPressure", Message: "large"}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "large"}}
	out, err := Strip(n)
	if err != nil {
		t.Fatal(err)
	}
	got := out.(*corev1.Node)
	ready, _, reason := Ready(got)
	if got.Labels["zone"] != "a" || got.Labels[v1alpha1.LabelMachineID] != "m" || got.Spec.ProviderID != "p" || !got.Spec.Unschedulable || got.Status.NodeInfo.KubeletVersion != "v1.36.3" ||
		got.Annotations[v1alpha1.AnnotationDrain] != "{}" || !ready || reason != "KubeletReady" {
		t.Errorf("missing in %+v", got)
	}
	if len(got.Annotations) != 2 || len(got.Status.Images) != 0 || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Message != "" || len(got.ManagedFields) != 0 || got.Status.NodeInfo.BootID != "" {
		t.Errorf("too much in %+v", got)
	}
}
