package up

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

// Cluster is a simulated cluster with BigFleet's two agents in it.
type Cluster struct {
	*simcluster.Cluster
	Client kubernetes.Interface
}

type telemetryOf func(ctx context.Context, component string) (*telemetry.Telemetry, error)

// add puts the cluster and its agents into the group.
func (c *Cluster) add(ctx context.Context, g *process.Group, shardAddr string, of telemetryOf) error {
	controller, err := of(ctx, "podcontroller-"+c.ID())
	if err != nil {
		return err
	}
	agent, err := of(ctx, "operator-"+c.ID())
	if err != nil {
		return err
	}
	g.Add(process.Component{Name: "cluster-" + c.ID(), Run: c.Run})
	g.Add(process.Component{Name: "podcontroller-" + c.ID(), Kind: process.Restarts, Run: func(ctx context.Context) error {
		return podcontroller.Run(ctx, podcontroller.Config{REST: c.ClientConfig(), Telemetry: controller, NoLeaderElection: true})
	}})
	g.Add(process.Component{Name: "operator-" + c.ID(), Kind: process.Restarts, Run: func(ctx context.Context) error {
		return operator.Run(ctx, operator.Config{
			ClusterID: c.ID(), ShardAddr: shardAddr, REST: c.ClientConfig(), Telemetry: agent,
			NoLeaderElection: true, BootstrapRenderer: operator.RendererStub,
		})
	}})
	return nil
}
