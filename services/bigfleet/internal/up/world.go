package up

import (
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// World is what runs.
type World struct {
	Clusters []*Cluster
	Read     bigfleetv1alpha1connect.ShardReadClient
}

func (w *World) StopShard() error  { return nil }
func (w *World) StartShard() error { return nil }
