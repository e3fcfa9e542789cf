// Package subject names what a verb speaks of, the way people type it and tables print it (OPS-4.14).
//
//	machine/ID  need/CLUSTER/ROW  cluster/ID  shard/ID  node/NAME  move/ID
//	pod/NAMESPACE/NAME  cr/NAMESPACE/NAME  deployment/NAMESPACE/NAME  statefulset/NAMESPACE/NAME  job/NAMESPACE/NAME
//
// Machine and cluster ids may hold slashes; only the first part and, for needs, the last one are split off.
package subject

import (
	"slices"
	"strings"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Kind is the first part of a subject.
type Kind string

// The kinds.
const (
	Machine Kind = "machine"
	Need    Kind = "need"
	Cluster Kind = "cluster"
	Shard   Kind = "shard"
	Pod     Kind = "pod"
	Request Kind = "cr"
	Node    Kind = "node"
	Move    Kind = "move"

	Deployment  Kind = "deployment"
	StatefulSet Kind = "statefulset"
	Job         Kind = "job"
)

var kinds = []Kind{Machine, Need, Cluster, Shard, Pod, Request, Node, Move, Deployment, StatefulSet, Job}

// Namespaced says whether things of the kind live in a namespace of a cluster.
func (k Kind) Namespaced() bool { return k == Pod || k == Request || k.Workload() }

// Workload says whether things of the kind own Pods.
func (k Kind) Workload() bool { return k == Deployment || k == StatefulSet || k == Job }

// others are what kubectl and people call kinds.
var others = map[string]Kind{"pods": Pod, "po": Pod, "nodes": Node, "no": Node, "machines": Machine, "needs": Need, "clusters": Cluster, "shards": Shard, "moves": Move,
	"capacityrequest": Request, "capacityrequests": Request, "deployments": Deployment, "deploy": Deployment, "statefulsets": StatefulSet, "sts": StatefulSet, "jobs": Job}

// InCluster is the kind of what lives in a cluster and not in BigFleet, by any word for it; empty for everything else.
func InCluster(word string) Kind {
	k, known := others[word]
	if !known {
		k = Kind(word)
	}
	if k.Namespaced() || k == Node {
		return k
	}
	return ""
}

// Of reads a subject from the arguments of a command line: KIND/NAME or KIND NAME. Things in a namespace may have it in their name, or
// take it from namespace.
func Of(args []string, namespace string, want ...Kind) (Subject, error) {
	head, name, found := strings.Cut(args[0], "/")
	if len(args) == 2 && !found {
		name, found = args[1], true
	} else if len(args) == 2 {
		return Subject{}, exit.Usagef("%q and %q are two subjects: name one", args[0], args[1])
	}
	k, known := others[head]
	if !known {
		k = Kind(head)
	}
	if name == "" && slices.Contains(kinds, k) && (len(want) == 0 || slices.Contains(want, k)) {
		return Subject{}, exit.Usagef("the name of the %s is missing: write %s/NAME", k, k)
	}
	if found && k.Namespaced() && !strings.Contains(name, "/") {
		name = namespace + "/" + name
	}
	if !found && len(want) == 0 {
		return Subject{}, exit.Usagef("%q has no kind: write pod/%s, deployment/%s, node/%s, machine/%s or another kind that `--help` lists", args[0], args[0], args[0], args[0], args[0])
	}
	if !found {
		return Parse(args[0], want...)
	}
	if k == "provider" {
		return Subject{}, exit.Usagef("a provider is not explained: `bigfleet describe provider/%s` shows it, and `bigfleet provider ping ADDRESS` asks it", name)
	}
	return Parse(string(k)+"/"+name, want...)
}

// Subject is one named thing. Scope is the cluster of a need, or the namespace of a Pod or request.
type Subject struct {
	Kind  Kind
	Scope string
	Name  string
}

func (s Subject) String() string {
	if s.Scope == "" {
		return string(s.Kind) + "/" + s.Name
	}
	return string(s.Kind) + "/" + s.Scope + "/" + s.Name
}

// Parse reads a subject. want limits the kinds; none means all.
func Parse(text string, want ...Kind) (Subject, error) {
	if len(want) == 0 {
		want = kinds
	}
	head, rest, found := strings.Cut(text, "/")
	for _, k := range want {
		if string(k) != head || !found || rest == "" {
			continue
		}
		s := Subject{Kind: k, Name: rest}
		if k == Need || k.Namespaced() {
			i := strings.LastIndex(rest, "/")
			if i <= 0 || i == len(rest)-1 {
				break
			}
			s.Scope, s.Name = rest[:i], rest[i+1:]
		}
		return s, nil
	}
	forms := make([]string, len(want))
	for i, k := range want {
		forms[i] = string(k) + "/NAME"
		if k == Need {
			forms[i] = "need/CLUSTER/ROW"
		}
		if k.Namespaced() {
			forms[i] = string(k) + "/NAMESPACE/NAME"
		}
	}
	return Subject{}, exit.Usagef("%q is not a subject: write %s; `bigfleet get KIND` lists names", text, strings.Join(forms, ", "))
}

// shortHex is how much of a row's hash a table shows. More than enough to name one row of a cluster, and every verb takes it.
const shortHex = 10

// ShortNeed is the name of a need as tables print it.
func ShortNeed(n *bigfleetv1alpha1.NeedView) string {
	name := NeedName(n)
	if i := strings.LastIndex(name, "/r1-"); i >= 0 && len(name) > i+len("/r1-")+shortHex {
		return name[:i+len("/r1-")+shortHex]
	}
	return name
}

// NeedName is a need as -o name prints it and Parse reads it after "need/".
func NeedName(n *bigfleetv1alpha1.NeedView) string {
	id := n.GetNeed().GetRowId()
	if id == "" {
		id = n.GetProfileFingerprint()
		if g := n.GetNeed().GetGroup(); g != "" {
			id += "," + g
		}
	}
	return n.GetClusterId() + "/" + id
}

// NeedRef is the reference that a shard understands. A name may be a row id, or a fingerprint with the group after a comma.
func (s Subject) NeedRef() *bigfleetv1alpha1.NeedRef {
	ref := &bigfleetv1alpha1.NeedRef{ClusterId: s.Scope}
	if strings.HasPrefix(s.Name, "f1-") {
		ref.ProfileFingerprint, ref.Group, _ = strings.Cut(s.Name, ",")
	} else {
		ref.RowId = s.Name
	}
	return ref
}
