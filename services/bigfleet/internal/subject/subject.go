// Package subject names what a verb speaks of, the way people type it and tables print it (OPS-4.14).
//
//	machine/ID  need/CLUSTER/ROW  cluster/ID  shard/ID  pod/NAMESPACE/NAME  cr/NAMESPACE/NAME  node/NAME  move/ID
//
// Machine and cluster ids may hold slashes; only the first part and, for needs, the last one are split off.
package subject

import (
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
)

var kinds = []Kind{Machine, Need, Cluster, Shard, Pod, Request, Node, Move}

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
		if k == Need || k == Pod || k == Request {
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
		if k == Pod || k == Request {
			forms[i] = string(k) + "/NAMESPACE/NAME"
		}
	}
	return Subject{}, exit.Usagef("%q is not a subject: write %s; `bigfleet get KIND` lists names", text, strings.Join(forms, ", "))
}

// NeedName is a need as tables print it and Parse reads it after "need/".
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
