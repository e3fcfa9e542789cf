// Package clusters says what a console reads in managed clusters, for the search and for the paths of Pods. It knows no Kubernetes
// client: the program that wraps the console brings one, or none.
package clusters

import (
	"context"
	"time"
)

// Reader reads objects of managed clusters. Safe for concurrent use.
type Reader interface {
	// Find looks for Pods and workloads by a part of their name, in lower case.
	Find(ctx context.Context, part string, limit int) ([]Object, error)
	// Pod reads one. Its error is a connect error.
	Pod(ctx context.Context, cluster, namespace, name string) (Pod, error)
}

// Object is one that was found. Kind is `pod`, `deployment`, `statefulset` or `job`; Row that of its need, where it is known.
type Object struct{ Kind, Cluster, Namespace, Name, Row string }

// Pod is what is known of one. A zero time has not happened.
type Pod struct {
	Created   time.Time
	Requested time.Time // its CapacityRequest was written
	Joined    time.Time // its node
	Ready     time.Time
	Row, Node string
	Waits     string // what its CapacityRequest says about itself
}
