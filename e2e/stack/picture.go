package stack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// The resources of BigFleet's CRDs.
var (
	CapacityRequests = schema.GroupVersionResource{Group: "bigfleet.lucy.sh", Version: "v1alpha1", Resource: "capacityrequests"}
	UpcomingNodes    = schema.GroupVersionResource{Group: "bigfleet.lucy.sh", Version: "v1alpha1", Resource: "upcomingnodes"}
)

// Picture is what can be seen of one cluster and of the provider at one moment.
type Picture struct {
	PodsPending, PodsRunning int
	Requests                 map[string]int // by phase
	Upcoming                 map[string]int // by phase
	NodesReady, Nodes        int            // but those of the control plane
	Machines                 map[string]int // by state, in short: idle; of every cluster
}

// Look takes a Picture of a cluster.
func (s *Stack) Look(ctx context.Context, c *Cluster) (Picture, error) {
	p := Picture{Requests: map[string]int{}, Upcoming: map[string]int{}, Machines: map[string]int{}}
	pods, err := c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return p, err
	}
	for _, pod := range pods.Items {
		switch pod.Status.Phase {
		case corev1.PodRunning:
			p.PodsRunning++
		case corev1.PodPending:
			p.PodsPending++
		}
	}
	nodes, err := c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return p, err
	}
	for _, n := range nodes.Items {
		if _, own := n.Labels[controlPlaneRole]; own {
			continue
		}
		p.Nodes++
		if NodeReady(&n) {
			p.NodesReady++
		}
	}
	for gvr, count := range map[schema.GroupVersionResource]map[string]int{CapacityRequests: p.Requests, UpcomingNodes: p.Upcoming} {
		list, err := c.Dynamic.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return p, err
		}
		for _, o := range list.Items {
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			if phase == "" {
				phase = "new" // created, its status is the next write
			}
			count[phase]++
		}
	}
	machines, err := s.Machines(ctx)
	if err != nil {
		return p, err
	}
	for _, m := range machines {
		p.Machines[State(m)]++
	}
	return p, nil
}

// Machines lists what the provider has.
func (s *Stack) Machines(ctx context.Context) ([]*bigfleetv1alpha1.Machine, error) {
	got, err := s.ProviderClient().List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil {
		return nil, err
	}
	return got.Msg.GetMachines(), nil
}

// State is a machine's state in short, for example "configured".
func State(m *bigfleetv1alpha1.Machine) string {
	return strings.ToLower(strings.TrimPrefix(m.GetState().String(), "MACHINE_STATE_"))
}

// NodeReady says whether a Node's condition Ready is True.
func NodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (p Picture) String() string {
	return fmt.Sprintf("Pods %d running, %d pending | requests %s | machines %s | upcoming nodes %s | Nodes %d ready of %d",
		p.PodsRunning, p.PodsPending, counts(p.Requests), counts(p.Machines), counts(p.Upcoming), p.NodesReady, p.Nodes)
}

func counts(m map[string]int) string {
	if len(m) == 0 {
		return "none"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d %s", m[k], strings.ToLower(k)))
	}
	return strings.Join(out, ", ")
}

// Until looks at a cluster until done says so, telling each picture that differs from the last. It fails when ctx ends.
func (s *Stack) Until(ctx context.Context, c *Cluster, tell func(Picture), done func(Picture) bool) error {
	var last string
	for {
		p, err := s.Look(ctx, c)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("gave up at: %s: %w", last, context.Cause(ctx))
		}
		if text := p.String(); text != last {
			last = text
			if tell != nil {
				tell(p)
			}
		}
		if done(p) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
