package serve

import (
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

// WatchNeeds streams needs in precedence order: a snapshot, then changes.
func (c *Console) WatchNeeds(ctx context.Context, req *connect.Request[pb.WatchNeedsRequest], out *connect.ServerStream[pb.WatchNeedsResponse]) error {
	leave, err := c.view()
	if err != nil {
		return err
	}
	defer leave()
	defer c.Sources.Watch()()
	if req.Msg.GetWindow() != nil {
		return c.watchWindow(ctx, req.Msg, out)
	}
	sent := map[string]*pb.FleetNeed{}
	complete := false
	return c.every(ctx, func() error {
		frame := &pb.WatchNeedsResponse{Sources: c.Sources.Statuses()}
		gone, known := map[string]bool{}, true
		for k := range sent {
			gone[k] = true
		}
		for _, x := range c.Sources.Shards() {
			st := x.Snapshot()
			if st.Needs == nil { // not read yet, or its shard does not answer: what was sent stands
				known = known && (st.Err != nil || req.Msg.GetShardId() != "" && req.Msg.GetShardId() != x.ID)
				for k, row := range sent {
					if row.GetShardId() == x.ID {
						delete(gone, k)
					}
				}
				continue
			}
			for _, row := range st.Needs.Rows {
				if !wanted(req.Msg, row) {
					continue
				}
				delete(gone, row.GetKey())
				if sent[row.GetKey()] == row {
					continue
				}
				sent[row.GetKey()] = row
				frame.Upserts = append(frame.Upserts, row)
				if len(frame.Upserts) == frameRows {
					if err := out.Send(frame); err != nil {
						return err
					}
					frame = &pb.WatchNeedsResponse{}
				}
			}
		}
		for k := range gone {
			delete(sent, k)
			frame.RemovedKeys = append(frame.RemovedKeys, k)
		}
		slices.Sort(frame.RemovedKeys)
		complete = complete || known
		frame.SnapshotComplete = complete
		if frame.Sources == nil {
			frame.Sources = c.Sources.Statuses()
		}
		return out.Send(frame)
	})
}

func wanted(q *pb.WatchNeedsRequest, row *pb.FleetNeed) bool {
	n := row.GetNeed()
	return (q.GetShardId() == "" || q.GetShardId() == row.GetShardId()) &&
		(q.GetClusterId() == "" || q.GetClusterId() == n.GetClusterId()) &&
		(!q.GetUnsatisfiedOnly() || !n.GetSatisfied()) &&
		(len(q.GetReasons()) == 0 || slices.Contains(q.GetReasons(), n.GetUnmetReason()))
}

const (
	machineEvery   = 5 * time.Second // a machine is read again without news of it
	machineTimeout = 10 * time.Second
	machineRecords = 500
)

// WatchMachine streams one machine and its records.
func (c *Console) WatchMachine(ctx context.Context, req *connect.Request[pb.WatchMachineRequest], out *connect.ServerStream[pb.WatchMachineResponse]) error {
	leave, err := c.view()
	if err != nil {
		return err
	}
	defer leave()
	id := req.Msg.GetMachineId()
	shard, first, err := c.findMachine(ctx, req.Msg.GetShardId(), id)
	if err != nil {
		return err
	}
	if err := out.Send(first); err != nil {
		return err
	}
	seen, read, last := int64(0), time.Now(), first.GetMachine()
	for _, r := range first.GetRecords() {
		seen = max(seen, r.GetSequence())
	}
	return c.every(ctx, func() error {
		next := &pb.WatchMachineResponse{}
		for _, r := range shard.Snapshot().Records {
			if r.GetMachineId() == id && r.GetSequence() > seen {
				seen = r.GetSequence()
				next.Records = append(next.Records, r)
			}
		}
		if len(next.Records) > 0 || time.Since(read) >= machineEvery {
			read = time.Now()
			if got, err := machine(ctx, shard, id); err == nil && !proto.Equal(got, last) {
				last, next.Machine = got, got
			}
		}
		return out.Send(next)
	})
}

func machine(ctx context.Context, shard *sources.Shard, id string) (*pb.GetMachineResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, machineTimeout)
	defer cancel()
	got, err := shard.Read.GetMachine(ctx, connect.NewRequest(&pb.GetMachineRequest{MachineId: id}))
	if err != nil {
		return nil, passed(err)
	}
	if op := got.Msg.GetOperation(); op != nil {
		got.Msg.Operation = shard.Worded(op)
	}
	return got.Msg, nil
}

// findMachine reads a machine and its records, where one shard knows either: a machine that is gone still has records.
func (c *Console) findMachine(ctx context.Context, shardID, id string) (*sources.Shard, *pb.WatchMachineResponse, error) {
	var last error
	var gone *sources.Shard
	var past *pb.WatchMachineResponse
	shards := c.Sources.Shards()
	if len(shards) == 0 {
		return nil, nil, connect.NewError(connect.CodeUnavailable, errors.New("no shard is known yet; the coordinator or --shard names them"))
	}
	for _, x := range shards {
		if shardID != "" && x.ID != shardID {
			continue
		}
		out := &pb.WatchMachineResponse{}
		var err error
		if out.Machine, err = machine(ctx, x, id); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			last = err
			continue
		}
		records, err := x.Read.GetMachineHistory(ctx, connect.NewRequest(&pb.GetMachineHistoryRequest{
			Subject: &pb.GetMachineHistoryRequest_MachineId{MachineId: id}, PageSize: machineRecords}))
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			last = passed(err)
			continue
		}
		if err == nil {
			for _, r := range slices.Backward(records.Msg.GetRecords()) {
				out.Records = append(out.Records, x.Worded(r))
			}
		}
		if out.Machine != nil {
			return x, out, nil
		}
		if len(out.Records) > 0 {
			gone, past = x, out
		}
	}
	switch {
	case gone != nil:
		return gone, past, nil
	case last != nil:
		return nil, nil, last
	}
	return nil, nil, connect.NewError(connect.CodeNotFound, errors.New("no shard knows this machine, and no record of it is left"))
}

// WatchMoves streams moves: a snapshot, then changes.
func (c *Console) WatchMoves(ctx context.Context, _ *connect.Request[pb.WatchMovesRequest], out *connect.ServerStream[pb.WatchMovesResponse]) error {
	leave, err := c.view()
	if err != nil {
		return err
	}
	defer leave()
	sent := map[string]*pb.Move{}
	return c.every(ctx, func() error {
		fleet := c.Sources.Fleet()
		if fleet.At.IsZero() {
			return fleet.Err // a coordinator that never answered has no moves to show
		}
		next := &pb.WatchMovesResponse{DomainMoves: fleet.DomainMoves}
		for _, m := range fleet.Moves {
			if !proto.Equal(sent[m.GetMoveId()], m) {
				sent[m.GetMoveId()] = m
				next.Moves = append(next.Moves, m)
			}
		}
		return out.Send(next)
	})
}
