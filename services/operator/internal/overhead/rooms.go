package overhead

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

const (
	typesMax     = 512             // instance types on the wire
	amountsMax   = 64              // resources of one
	nameMax      = 317             // bytes of a resource's name
	settle       = 2 * time.Second // that changes of Nodes rest, before they are counted
	unstatedPods = 110_000         // default of the kubelet's maxPods, which the shard assumes, too
	steady       = 100             // a hundredth: Nodes of a type differ by some memory, and a larger value by less is not believed
	pods         = "pods"          //
	volumePrefix = "attachable-volumes-csi-"
)

// amounts are thousandths by resource.
type amounts map[string]int64

// shape is what is known of one instance type.
type shape struct {
	offered amounts // by the shard's word
	found   amounts // by the Nodes' word: the middle one, the smaller of two
	nodes   int
	node    *corev1.Node // one with what all of them carry
}

// Difference is a resource of which Nodes of a type have something else than was offered.
type Difference struct {
	InstanceType, Resource string
	Offered, Found         string // Offered is empty where nothing was
	Nodes                  int    // that are Ready
}

// SetCSINode takes the present form of a CSINode: how many volumes of a driver can be attached to its Node.
func (s *Sum) SetCSINode(n *storagev1.CSINode) {
	limits := amounts{}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[volumePrefix+d.Name] = int64(*d.Allocatable.Count) * 1000
		}
	}
	s.mu.Lock()
	same := maps.Equal(s.csi[n.Name], limits)
	s.csi[n.Name] = limits
	s.mu.Unlock()
	if !same {
		s.Touch()
	}
}

// DeleteCSINode takes the end of a CSINode.
func (s *Sum) DeleteCSINode(n *storagev1.CSINode) {
	s.mu.Lock()
	delete(s.csi, n.Name)
	s.mu.Unlock()
	s.Touch()
}

// Touch says that Nodes or machines changed. It never blocks.
func (s *Sum) Touch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run counts again after changes of Nodes, until ctx ends.
func (s *Sum) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		select { // a crowd of changes is counted once
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
		s.recount()
	}
}

// Rooms is what Nodes have for Pods, by instance type, where it is not what the shard believes. It must not be changed.
func (s *Sum) Rooms() []*pb.NodeRoom {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rooms
}

// Differences lists where Nodes are not as they were offered, by type and resource.
func (s *Sum) Differences() (out []Difference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, typ := range slices.Sorted(maps.Keys(s.shapes)) {
		x := s.shapes[typ]
		for _, name := range slices.Sorted(maps.Keys(x.found)) {
			if x.found[name] == x.believed(name) {
				continue
			}
			d := Difference{InstanceType: typ, Resource: name, Found: quantity.Format(name, x.found[name]), Nodes: x.nodes}
			if offered := x.offered[name]; offered > 0 {
				d.Offered = quantity.Format(name, offered)
			}
			out = append(out, d)
		}
	}
	return out
}

// believed is what the shard assumes before a report.
func (x *shape) believed(name string) int64 {
	if name == pods {
		return cmp.Or(x.offered[name], unstatedPods)
	}
	return x.offered[name]
}

// learn looks at the Nodes of each type. Types whose machines are gone stay as they were: the next machine is like the last one.
func (s *Sum) learn() {
	type seen struct {
		offered amounts
		nodes   []*corev1.Node
		all     *corev1.Node
	}
	now := map[string]*seen{}
	for _, id := range s.machines.IDs() {
		m, known := s.machines.Machine(id)
		typ := m.Labels[corev1.LabelInstanceTypeStable]
		if !known || typ == "" {
			continue
		}
		x := now[typ]
		if x == nil {
			x = &seen{offered: read(m.Resources)}
			now[typ] = x
		}
		n, _ := s.machines.Find(id)
		x.all = alike(x.all, m, n)
		if n == nil {
			continue
		}
		if ready, _, _ := machine.Ready(n); ready && !m.Leaving {
			x.nodes = append(x.nodes, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for typ, x := range now {
		old := s.shapes[typ]
		if old == nil {
			if len(s.shapes) >= typesMax {
				continue
			}
			old = &shape{}
			s.shapes[typ] = old
		}
		old.offered, old.node = x.offered, x.all
		if len(x.nodes) > 0 {
			old.found, old.nodes = s.middle(x.nodes, old.found), len(x.nodes)
		}
	}
}

// alike adds a machine to what all machines of a type and their Nodes carry.
func alike(all *corev1.Node, m machine.Machine, n *corev1.Node) *corev1.Node {
	labels := maps.Clone(m.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if n != nil {
		maps.Copy(labels, n.Labels)
	}
	if all == nil {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: slices.Clone(m.Taints)}, ObjectMeta: metaOf(labels)}
	}
	maps.DeleteFunc(all.Labels, func(k, v string) bool { return labels[k] != v })
	all.Spec.Taints = slices.DeleteFunc(all.Spec.Taints, func(t corev1.Taint) bool {
		return !slices.ContainsFunc(m.Taints, func(x corev1.Taint) bool { return t.MatchTaint(&x) && t.Value == x.Value })
	})
	return all
}

// middle is the middle value of each resource over Nodes of a type that have it, the smaller of two: neither a broken Node nor an odd one
// decides. What less than half of them have is left out, and so are devices whose plugin has not started. Limits of volumes are not: a Node
// without the driver attaches none of its volumes, and says nothing about how many the others take.
func (s *Sum) middle(nodes []*corev1.Node, before amounts) amounts {
	values := map[string][]int64{}
	for _, n := range nodes {
		for name, q := range n.Status.Allocatable {
			if len(name) <= nameMax && q.Sign() > 0 && !strings.HasPrefix(string(name), "hugepages-") {
				values[string(name)] = append(values[string(name)], q.MilliValue())
			}
		}
		for name, v := range s.csi[n.Name] {
			if len(name) <= nameMax && v > 0 {
				values[name] = append(values[name], v)
			}
		}
	}
	out := amounts{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list := values[name]
		if 2*len(list) < len(nodes) && !strings.HasPrefix(name, volumePrefix) || len(out) >= amountsMax {
			continue
		}
		slices.Sort(list)
		v := list[(len(list)-1)/2]
		if was := before[name]; v > was && v-was <= was/steady {
			v = was
		}
		out[name] = v
	}
	return out
}

// state writes what differs from what the shard would believe with the overhead of every node. s.mu is held.
func (s *Sum) state(general amounts) (out []*pb.NodeRoom) {
	for _, typ := range slices.Sorted(maps.Keys(s.shapes)) {
		x := s.shapes[typ]
		daemons := s.daemons(withDefaults(x.node))
		names := map[string]bool{}
		for _, of := range []amounts{x.found, x.offered, daemons, general} {
			for name := range of {
				names[name] = true
			}
		}
		resources := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			has, believed := cmp.Or(x.found[name], x.believed(name)), x.believed(name)
			if has == 0 {
				continue
			}
			room := max(1, has-daemons[name])
			if room != max(0, believed-general[name]) {
				resources[name] = quantity.Format(name, room)
			}
		}
		if len(resources) > 0 && len(resources) <= amountsMax {
			out = append(out, &pb.NodeRoom{InstanceType: typ, Resources: resources})
		}
	}
	return out
}

func read(in map[string]string) amounts {
	out := amounts{}
	for name, text := range in {
		if v, err := quantity.Parse(text, quantity.Down); err == nil && v > 0 {
			out[name] = v
		}
	}
	return out
}
