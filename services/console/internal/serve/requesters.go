package serve

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const requestersMax = 100

// GetRequesters names the namespaces that request a need (OPS-6.12). Shards do not know them: a need is the sum of the requests of all
// namespaces of its cluster.
func (c *Console) GetRequesters(ctx context.Context, req *connect.Request[pb.GetRequestersRequest]) (*connect.Response[pb.GetRequestersResponse], error) {
	if c.Clusters == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("this console reads no cluster: start it with --kubeconfig to see which namespaces request a need"))
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	all, whole, err := c.Clusters.Requesters(ctx, req.Msg.GetClusterId(), req.Msg.GetRowId())
	if err != nil {
		return nil, err
	}
	out := &pb.GetRequestersResponse{More: !whole || len(all) > requestersMax}
	for _, of := range all[:min(len(all), requestersMax)] {
		out.Requesters = append(out.Requesters, &pb.Requester{Namespace: of.Namespace, Team: of.Team, Requests: int32(of.Requests)})
	}
	return connect.NewResponse(out), nil
}
