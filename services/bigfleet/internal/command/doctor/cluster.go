package doctor

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// clusterChecks looks inside one managed cluster: definitions, rights, Lease holders, identity of Nodes, and what they have.
func clusterChecks(ctx context.Context, a *app.App, r *report, f flags) {
	cfg, err := a.Kube()
	if err != nil {
		r.fail("cluster", "Name a kubeconfig with --kubeconfig and a context with --kube-context", "%v", err)
		return
	}
	about, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		r.fail("cluster", "Check the kubeconfig", "%v", err)
		return
	}
	v, err := about.ServerVersion()
	if err != nil {
		r.fail("cluster", "Check the kubeconfig and that the API server runs", "its API server at %s does not answer: %v", cfg.Host, err)
		return
	}
	r.ok("cluster", "API server %s at %s", v.GitVersion, cfg.Host)
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		r.fail("cluster", "Check the kubeconfig", "%v", err)
		return
	}
	definitions(ctx, r, d)
	rights(ctx, r, cfg, f.operatorAccount)
	leases(ctx, a, r, cfg)
	nodes(ctx, r, cfg)
	shapes(ctx, r, cfg)
}

// definitions compares what is installed with what this version carries.
func definitions(ctx context.Context, r *report, d dynamic.Interface) {
	const fix = "`bigfleet crds diff` shows what differs, `bigfleet crds apply` installs the CRDs of this version"
	changes, err := crds.Compare(ctx, d)
	if err != nil {
		r.fail("CRDs", "Run this with permission to read CustomResourceDefinitions", "%v", err)
		return
	}
	for _, c := range changes {
		switch {
		case c.Missing:
			r.fail("CRD "+c.Name, fix, "it is not installed")
		case c.Stale():
			r.fail("CRD "+c.Name, fix, "its version differs from this command; first of %d differences: %s", len(c.Lines), c.Lines[0])
		default:
			r.ok("CRD "+c.Name, "installed, of this version")
		}
	}
}

// right is one thing the operator must be allowed to do (OP-16).
type right struct{ group, resource, subresource, verb string }

func operatorRights() []right {
	const fleet = "bigfleet.lucy.sh"
	out := []right{{fleet, "capacityrequests", "status", "patch"}, {fleet, "upcomingnodes", "status", "patch"}, {"", "pods", "eviction", "create"}, {"", "nodes", "", "patch"}}
	for _, verb := range []string{"list", "watch"} {
		for _, on := range []right{{fleet, "capacityrequests", "", ""}, {fleet, "upcomingnodes", "", ""}, {fleet, "availablecapacities", "", ""}, {"", "nodes", "", ""}, {"", "pods", "", ""}, {"apps", "daemonsets", "", ""}, {"policy", "poddisruptionbudgets", "", ""}} {
			on.verb = verb
			out = append(out, on)
		}
	}
	for _, verb := range []string{"create", "patch", "delete"} {
		out = append(out, right{fleet, "upcomingnodes", "", verb}, right{fleet, "availablecapacities", "", verb})
	}
	return out
}

// rights asks the API server what the account may do, as that account.
func rights(ctx context.Context, r *report, cfg *rest.Config, account string) {
	about := "RBAC"
	as := rest.CopyConfig(cfg)
	if account != "" {
		as.Impersonate = rest.ImpersonationConfig{UserName: account}
		about += " of " + account
	}
	client, err := authorizationclient.NewForConfig(as)
	if err != nil {
		r.fail(about, "Check the kubeconfig that --kubeconfig and --kube-context name", "%v", err)
		return
	}
	var missing []string
	for _, need := range operatorRights() {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: need.group, Resource: need.resource, Subresource: need.subresource, Verb: need.verb,
		}}}
		got, err := client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			r.fail(about, "Run this with permission to impersonate the account, or with --as ''", "its permissions cannot be read: %v", err)
			return
		}
		if !got.Status.Allowed {
			missing = append(missing, need.verb+" "+need.name())
		}
	}
	if len(missing) > 0 {
		r.fail(about, "Install the ClusterRole of chart bigfleet-operator (rbac.create=true) and bind it to the account", "it may not %v", missing)
		return
	}
	r.ok(about, "the operator has all the permissions that it needs")
}

func (n right) name() string {
	out := n.resource
	if n.subresource != "" {
		out += "/" + n.subresource
	}
	if n.group != "" {
		out += "." + n.group
	}
	return out
}

// leases says whether somebody holds the operator's Lease.
func leases(ctx context.Context, a *app.App, r *report, cfg *rest.Config) {
	client, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		r.warn("Lease", "Check the kubeconfig", "%v", err)
		return
	}
	all, err := client.Leases("").List(ctx, metav1.ListOptions{})
	if err != nil {
		r.warn("Lease", "Run this with permission to list Leases", "they cannot be listed: %v", err)
		return
	}
	found := false
	for _, l := range all.Items {
		if len(l.Name) < len(leasePrefix) || l.Name[:len(leasePrefix)] != leasePrefix {
			continue
		}
		found = true
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		if l.Spec.RenewTime == nil || a.Now().Sub(l.Spec.RenewTime.Time) > leaseOld || holder == "" {
			r.fail("Lease "+l.Namespace+"/"+l.Name, "Check the operator's Pods", "it has expired: no operator is running")
			continue
		}
		r.ok("Lease "+l.Namespace+"/"+l.Name, "held by %s", holder)
	}
	if !found {
		r.warn("Lease", "Install chart bigfleet-operator, or ignore this where the operator runs elsewhere without election", "no operator has held it yet")
	}
}

const leasePrefix = "bigfleet-operator-"

// machineLabel names the machine behind a Node (WIRE-11).
const machineLabel = "bigfleet.lucy.sh/machine-id"

// nodes finds two Nodes for one machine and machines' Nodes that never became Ready.
func nodes(ctx context.Context, r *report, cfg *rest.Config) {
	client, err := coreclient.NewForConfig(cfg)
	if err != nil {
		r.warn("Nodes", "Check the kubeconfig", "%v", err)
		return
	}
	list, err := client.Nodes().List(ctx, metav1.ListOptions{LabelSelector: machineLabel})
	if err != nil {
		r.warn("Nodes", "Run this with permission to list Nodes", "they cannot be listed: %v", err)
		return
	}
	byMachine := map[string]string{}
	bad := 0
	for _, n := range list.Items {
		id := n.Labels[machineLabel]
		if other := byMachine[id]; other != "" {
			bad++
			r.fail("Node "+n.Name, "Remove the label from the Node that is not this machine; until then neither is drained", "this Node and Node %s both claim machine %s", other, id)
		}
		byMachine[id] = n.Name
		ready := false
		for _, c := range n.Status.Conditions {
			ready = ready || c.Type == "Ready" && c.Status == "True"
		}
		if !ready && time.Since(n.CreationTimestamp.Time) > 10*time.Minute {
			bad++
			r.warn("Node "+n.Name, "Check its kubelet and network plugin", "it is not Ready %s after it was created", time.Since(n.CreationTimestamp.Time).Round(time.Minute))
		}
	}
	if bad == 0 {
		r.ok("Nodes", "%s", belong(len(list.Items)))
	}
}

// belong words that every Node has its machine.
func belong(nodes int) string {
	switch nodes {
	case 0:
		return "the cluster has no Node of BigFleet"
	case 1:
		return "1 Node belongs to a machine, to exactly one"
	}
	return output.Count(nodes, "Node") + " belong to machines, each to exactly one"
}
