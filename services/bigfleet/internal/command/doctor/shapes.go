package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// The ConfigMap in which an operator says what it does (OP-14.4).
const (
	statusName = "bigfleet-operator-status"
	statusKey  = "status.json"
)

const typesMax = 20 // instance types that are named

// shape is a resource of which the Nodes of an instance type have something else than their provider offered (OP-5.26).
type shape struct {
	InstanceType string `json:"instanceType"`
	Resource     string `json:"resource"`
	Offered      string `json:"offered"` // empty: nothing was
	Found        string `json:"found"`
	Nodes        int    `json:"nodes"`
}

// shapes says which instance types have Nodes that are not as they were offered. BigFleet counts with the Nodes, so that only what
// costs much is a warning.
func shapes(ctx context.Context, r *report, cfg *rest.Config) {
	const about = "instance types"
	client, err := coreclient.NewForConfig(cfg)
	if err != nil {
		r.warn(about, "Check the kubeconfig", "%v", err)
		return
	}
	list, err := client.ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + statusName})
	if err != nil {
		r.warn(about, "Run this with permission to list ConfigMaps", "the operator's status cannot be read: %v", err)
		return
	}
	if len(list.Items) == 0 {
		r.warn(about, "Install chart bigfleet-operator, or check the log of the operator", "no operator has written ConfigMap %s: what Nodes offer is not known", statusName)
		return
	}
	differ := map[string][]shape{}
	for _, m := range list.Items {
		var status struct {
			NodeShapes []shape `json:"nodeShapes"`
		}
		if err := json.Unmarshal([]byte(m.Data[statusKey]), &status); err != nil {
			r.warn(about, "Delete the ConfigMap; the operator writes it again", "%s of ConfigMap %s/%s cannot be read: %v", statusKey, m.Namespace, m.Name, err)
			return
		}
		for _, s := range status.NodeShapes {
			differ[s.InstanceType] = append(differ[s.InstanceType], s)
		}
	}
	if len(differ) == 0 {
		r.ok(about, "the Nodes that have joined are as their provider offered them")
	}
	names := make([]string, 0, len(differ))
	for name := range differ {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), typesMax)] {
		shapeFinding(r, name, differ[name])
	}
	if more := len(names) - typesMax; more > 0 {
		r.ok(about, "%d more have Nodes that are not as they were offered: ConfigMap %s lists them", more, statusName)
	}
}

// shapeFinding is the finding of one instance type.
func shapeFinding(r *report, name string, of []shape) {
	var all []string
	nodes, little := 0, false
	for _, s := range of {
		all = append(all, fmt.Sprintf("%s %s (offered: %s)", s.Resource, s.Found, cmp.Or(s.Offered, "nothing")))
		nodes, little = max(nodes, s.Nodes), little || s.little()
	}
	message := fmt.Sprintf("its Nodes (%d Ready) have %s. Machines of this type count as what their Nodes have", nodes, strings.Join(all, ", "))
	if little {
		r.warn("instance type "+name, "Check what the kubelet reserves and the device plugins of these Nodes, or correct what the provider offers", "%s", message)
		return
	}
	r.ok("instance type "+name, "%s", message)
}

// little reports whether Nodes have less than half of what is paid for.
func (s shape) little() bool {
	offered, err := resource.ParseQuantity(s.Offered)
	found, bad := resource.ParseQuantity(s.Found)
	if err != nil || bad != nil {
		return false
	}
	found.Add(found)
	return found.Cmp(offered) < 0
}
