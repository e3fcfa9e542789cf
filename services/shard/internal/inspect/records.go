package inspect

import (
	"context"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
)

// GetMachineHistory returns records of a machine, need, cluster or the shard, newest first. Page tokens name the epoch
// and sequence of the last record given.
func (s *Server) GetMachineHistory(ctx context.Context, r *connect.Request[pb.GetMachineHistoryRequest]) (*connect.Response[pb.GetMachineHistoryResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	key, err := untoken(r.Msg.PageToken, 2)
	if err != nil {
		return nil, err
	}
	match, word, err := subject(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	if len(key) > 0 {
		match = olderThan(match, key)
	}
	size := pageSize(r.Msg.PageSize, 100)
	list, truncated, err := s.cfg.Records.History(ctx, audit.Query{Since: r.Msg.SinceUnixNanos, Until: r.Msg.UntilUnixNanos, Match: match, Word: word, Limit: size + 1})
	if err != nil {
		return nil, err
	}
	list = veiled(scope(ctx), list)
	out := &pb.GetMachineHistoryResponse{Records: list, Truncated: truncated}
	if len(list) > size {
		out.Records = list[:size]
		last := list[size-1]
		out.NextPageToken = token(strconv.FormatInt(last.ShardEpoch, 10), strconv.FormatInt(last.Sequence, 10))
		out.Truncated = false
	}
	return connect.NewResponse(out), nil
}

// veil is a record as one cluster may read it: without the names of another that took its machine (SHARD-23.6). own is "" for readers of
// the whole fleet. Records are shared, so a changed one is a copy.
func veil(own string, x *pb.DecisionRecord) *pb.DecisionRecord {
	if own == "" || x.PreemptorClusterId == "" || x.PreemptorClusterId == own {
		return x
	}
	x = proto.CloneOf(x)
	x.PreemptorClusterId, x.PreemptorFingerprint, x.PreemptorRowId = "", "", ""
	return x
}

func veiled(own string, list []*pb.DecisionRecord) []*pb.DecisionRecord {
	out := make([]*pb.DecisionRecord, len(list))
	for i, x := range list {
		out[i] = veil(own, x)
	}
	return out
}

func olderThan(match func(*pb.DecisionRecord) bool, key []string) func(*pb.DecisionRecord) bool {
	epoch, _ := strconv.ParseInt(key[0], 10, 64)
	sequence, _ := strconv.ParseInt(key[1], 10, 64)
	return func(x *pb.DecisionRecord) bool {
		return (x.ShardEpoch < epoch || x.ShardEpoch == epoch && x.Sequence < sequence) && match(x)
	}
}

// subject makes the filter of a history request, inside what the caller may see, and a word that all it lets through have.
func subject(ctx context.Context, m *pb.GetMachineHistoryRequest) (match func(*pb.DecisionRecord) bool, word string, err error) {
	own := scope(ctx)
	inScope := func(x *pb.DecisionRecord) bool { return own == "" || x.ClusterId == own }
	switch q := m.Subject.(type) {
	case *pb.GetMachineHistoryRequest_MachineId:
		return func(x *pb.DecisionRecord) bool { return x.MachineId == q.MachineId && inScope(x) }, q.MachineId, nil
	case *pb.GetMachineHistoryRequest_NodeName:
		return func(x *pb.DecisionRecord) bool { return x.NodeName == q.NodeName && inScope(x) }, q.NodeName, nil
	case *pb.GetMachineHistoryRequest_Need:
		n := q.Need
		if _, err := narrow(ctx, n.ClusterId); err != nil {
			return nil, "", err
		}
		return func(x *pb.DecisionRecord) bool {
			return x.ClusterId == n.ClusterId && (n.RowId == "" || x.RowId == n.RowId) &&
				(n.ProfileFingerprint == "" || x.ProfileFingerprint == n.ProfileFingerprint) && (n.Group == "" || x.Group == n.Group) &&
				(x.RowId != "" || x.ProfileFingerprint != "")
		}, n.ClusterId, nil
	case *pb.GetMachineHistoryRequest_ClusterId:
		only, err := narrow(ctx, q.ClusterId)
		if err != nil {
			return nil, "", err
		}
		return func(x *pb.DecisionRecord) bool { return x.ClusterId == only }, only, nil
	}
	return inScope, own, nil
}

// keepAlive is how often a stream that follows sends a frame although nothing happened (WIRE-9.5). lookEvery is how often it looks
// for new records: the core's loop wakes no reader, so that readers cost it nothing.
const (
	keepAlive = 10 * time.Second
	lookEvery = 100 * time.Millisecond
)

// WatchDecisions streams records from a position on.
func (s *Server) WatchDecisions(ctx context.Context, r *connect.Request[pb.WatchDecisionsRequest], out *connect.ServerStream[pb.WatchDecisionsResponse]) error {
	q := r.Msg
	only, err := narrow(ctx, q.ClusterId)
	if err != nil {
		return err
	}
	end, err := s.streams.take(ctx)
	if err != nil {
		return err
	}
	defer end()
	own, look := scope(ctx), time.NewTicker(lookEvery)
	defer look.Stop()
	next, sent := q.FromSequence, time.Now()
	send := func(x *pb.WatchDecisionsResponse) error {
		sent = time.Now()
		return out.Send(x)
	}
	for {
		list, to, skipped := s.cfg.Records.Follow(next)
		more := len(list) > 0
		next = to
		if skipped > 0 {
			if err := send(&pb.WatchDecisionsResponse{NextSequence: next, Skipped: skipped}); err != nil {
				return err
			}
		}
		for _, x := range list {
			if !watched(q, only, x) {
				continue
			}
			if err := send(&pb.WatchDecisionsResponse{Record: veil(own, x), NextSequence: x.Sequence + 1}); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		if !q.Follow {
			return nil
		}
		if time.Since(sent) >= keepAlive {
			if err := send(&pb.WatchDecisionsResponse{NextSequence: next}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}

func watched(q *pb.WatchDecisionsRequest, only string, x *pb.DecisionRecord) bool {
	return (only == "" || x.ClusterId == only) && (q.MachineId == "" || x.MachineId == q.MachineId) &&
		(len(q.Kinds) == 0 || slices.Contains(q.Kinds, x.Kind)) && (len(q.Types) == 0 || slices.Contains(q.Types, x.Type))
}
