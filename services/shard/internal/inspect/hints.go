package inspect

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// ListHints lists the capacity hints last sent, by cluster and fingerprint.
func (s *Server) ListHints(ctx context.Context, r *connect.Request[pb.ListHintsRequest]) (*connect.Response[pb.ListHintsResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	only, err := narrow(ctx, r.Msg.ClusterId)
	if err != nil {
		return nil, err
	}
	key, err := untoken(r.Msg.PageToken, 2)
	if err != nil {
		return nil, err
	}
	var list []core.HintView
	if err := s.visit(ctx, func(c *core.Core) { list = c.Hints(only) }); err != nil {
		return nil, err
	}
	size := pageSize(r.Msg.PageSize, 1000)
	out := &pb.ListHintsResponse{}
	for i := range list {
		h := &list[i]
		if len(key) > 0 && (h.Cluster < key[0] || h.Cluster == key[0] && h.Fingerprint <= key[1]) {
			continue
		}
		if len(out.Hints) == size {
			last := out.Hints[size-1]
			out.NextPageToken = token(last.ClusterId, last.ProfileFingerprint)
			break
		}
		out.Hints = append(out.Hints, &pb.CapacityHint{ClusterId: h.Cluster, ProfileFingerprint: h.Fingerprint, AvailableCount: int32(h.Count),
			Requirements: convert.Requirements(h.Requirements), Confidence: h.Confidence.String(), CostPerHour: convert.Dollars(h.PriceMicro), Reason: h.Confidence.Why()})
	}
	return connect.NewResponse(out), nil
}
