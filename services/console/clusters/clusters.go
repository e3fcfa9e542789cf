// Package clusters says what a console reads in managed clusters, for the search and for the paths of Pods. It knows no Kubernetes
// client: the program that wraps the console brings one, or none.
package clusters

import (
	"context"
	"time"
)

// Reader reads objects of managed clusters. Safe for concurrent use.
type Reader interface {
	// Find looks for Pods and workloads by a part of their namespace and name, in lower case. What was found is returned beside an
	// error too.
	Find(ctx context.Context, part string, limit int) ([]Object, error)
	// Pod reads one. Its error is a connect error.
	Pod(ctx context.Context, cluster, namespace, name string) (Pod, error)
	// Requesters names the namespaces that request a row of a cluster's demand, the largest first; whole is false if it did not read all
	// requests. Its error is a connect error.
	Requesters(ctx context.Context, cluster, row string) (of []Requester, whole bool, err error)
}

// Requester is a namespace that requests a row. Team is empty if it has none, or may not be read.
type Requester struct {
	Namespace, Team string
	Requests        int
}

// Object is one that was found. Kind is `pod`, `deployment`, `statefulset` or `job`.
type Object struct{ Kind, Cluster, Namespace, Name string }

// Pod is what is known of one. A zero time has not happened. Clusters tell times in whole seconds.
type Pod struct {
	Created      time.Time
	Requested    time.Time // its CapacityRequest was written
	Acknowledged time.Time // the shard has it
	Joined       time.Time // its node
	Ready        time.Time
	Rows         []string // under which it may be counted; the first that the shard knows is its need
	Node         string
	Waits        string // what its scheduler or its CapacityRequest says
}
