package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// ReportShard takes a report and answers with what the shard has to do (COORD-7.1).
func (s *Server) ReportShard(ctx context.Context, req *connect.Request[v1.ShardReport]) (*connect.Response[v1.ReportAck], error) {
	if err := rpc.PeerFrom(ctx).RequireID(identity.ID{Kind: identity.Shard, Name: req.Msg.GetShardId()}); err != nil {
		s.Refused(rpc.Refusal{Procedure: req.Spec().Procedure, Peer: rpc.PeerFrom(ctx), Err: err})
		s.config.Metrics.Reports.WithLabelValues("identity").Inc()
		return nil, err
	}
	answer, err := leadOf(ctx).desk.Report(ctx, req.Msg)
	if err != nil {
		if errors.Is(err, replica.ErrBusy) {
			err = replica.ErrOutcomeUnknown // it waited its turn and the turn did not come
		}
		err = s.fail(err)
		s.config.Metrics.Reports.WithLabelValues(connect.CodeOf(err).String()).Inc()
		return nil, err
	}
	answer.LeaderHint = s.node.Leader()
	return connect.NewResponse(answer), nil
}

// inTurn lets reports in a few at a time, before anything of them is decoded; see shards.Turns. A report is read whole
// before its turn, so that a slow link takes none. A replica that does not lead reads nothing of it: while there is no leader
// every shard asks every replica, and what is refused must not cost as much as what is taken.
func (s *Server) inTurn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != api.CoordinatorReportShardProcedure {
			h.ServeHTTP(w, r)
			return
		}
		if s.node.Reign() == nil {
			h.ServeHTTP(w, withoutBody(r))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MessageBytesMax+envelopeBytes))
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		ctx, end, err := s.turns.Take(r.Context())
		if err != nil {
			return // the caller is gone
		}
		defer end()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withoutBody is a call with an empty message in the place of the one that it carries: the gate refuses it as it is.
func withoutBody(r *http.Request) *http.Request {
	empty := make([]byte, envelopeBytes) // gRPC: not compressed, no bytes
	switch kind := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "application/json"):
		empty = []byte("{}")
	case !strings.HasPrefix(kind, "application/grpc"):
		empty = nil
	}
	r = r.Clone(r.Context())
	r.Header.Del("Content-Encoding")
	r.ContentLength = int64(len(empty))
	r.Body = io.NopCloser(bytes.NewReader(empty))
	return r
}

// envelopeBytes is what gRPC puts around a message.
const envelopeBytes = 5

// failing is the end of a body: io.EOF, or why the rest could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// JoinRaftCluster adds a replica to the group, or changes its address (COORD-13.6 to 13.9).
func (s *Server) JoinRaftCluster(ctx context.Context, req *connect.Request[v1.JoinRaftClusterRequest]) (*connect.Response[v1.JoinRaftClusterResponse], error) {
	peer := rpc.PeerFrom(ctx)
	err := peer.RequireID(identity.ID{Kind: identity.Coordinator, Name: req.Msg.GetNodeId()})
	if err != nil && s.config.AcceptAdmin {
		err = peer.Require(identity.Admin)
	}
	if err != nil {
		s.Refused(rpc.Refusal{Procedure: req.Spec().Procedure, Peer: peer, Err: err})
		return nil, err
	}
	suffrage, err := s.node.Join(replica.WithActor(ctx, callerOf(ctx)), req.Msg)
	if err != nil {
		s.config.Log.Warn("a replica was not let in", "node", req.Msg.GetNodeId(), "address", req.Msg.GetRaftAddress(), "err", err)
		return nil, s.fail(err)
	}
	return connect.NewResponse(&v1.JoinRaftClusterResponse{ClusterUuid: s.node.UUID(), Suffrage: suffrage}), nil
}
