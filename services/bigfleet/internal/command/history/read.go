package history

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// found is what the logs of some shards have, newest first.
type found struct {
	records         []*bigfleetv1alpha1.DecisionRecord
	more, truncated bool // older ones that match are in the log; older ones have left it
}

// gather asks every shard for the records of some subjects.
func gather(ctx context.Context, a *app.App, f *fleet.Fleet, shards []fleet.Shard, subjects []subject.Subject, span Span, about func(*bigfleetv1alpha1.DecisionRecord) bool) (all found, failed error) {
	answers, failed := fleet.Each(ctx, f, shards, "reading the history", func(ctx context.Context, sh fleet.Shard) (found, error) {
		var of found
		for _, s := range subjects {
			got, err := read(ctx, sh, s, span, about)
			if err != nil {
				return found{}, err
			}
			of.records, of.more, of.truncated = append(of.records, got.records...), of.more || got.more, of.truncated || got.truncated
		}
		return of, nil
	})
	for _, got := range answers {
		if got != nil {
			all.records, all.more, all.truncated = append(all.records, got.records...), all.more || got.more, all.truncated || got.truncated
		}
	}
	slices.SortStableFunc(all.records, func(x, y *bigfleetv1alpha1.DecisionRecord) int {
		return cmp.Compare(y.GetAtUnixNanos(), x.GetAtUnixNanos())
	})
	if len(all.records) > span.Limit {
		all.records, all.more = all.records[:span.Limit], true
	}
	return all, failed
}

// read pages through the records of one subject until the span is full. more says that it ended before the log did.
func read(ctx context.Context, sh fleet.Shard, s subject.Subject, span Span, about func(*bigfleetv1alpha1.DecisionRecord) bool) (out found, err error) {
	req := &bigfleetv1alpha1.GetMachineHistoryRequest{PageSize: int32(min(span.Limit, 5000))}
	switch s.Kind {
	case subject.Machine:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_MachineId{MachineId: s.Name}
	case subject.Need:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_Need{Need: s.NeedRef()}
	case subject.Cluster:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_ClusterId{ClusterId: s.Name}
	case subject.Node:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_NodeName{NodeName: s.Name}
	}
	if !span.From.IsZero() {
		req.SinceUnixNanos = span.From.UnixNano()
	}
	if !span.To.IsZero() {
		req.UntilUnixNanos = span.To.UnixNano()
	}
	for {
		got, err := sh.Read.GetMachineHistory(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return out, nil
		}
		if err != nil {
			return found{}, err
		}
		for _, r := range got.Msg.GetRecords() {
			if about(r) {
				out.records = append(out.records, r)
			}
		}
		out.truncated = out.truncated || got.Msg.GetTruncated()
		req.PageToken = got.Msg.GetNextPageToken()
		if out.more = req.PageToken != ""; !out.more || len(out.records) >= span.Limit {
			return out, nil
		}
	}
}

// Of returns the newest records of a machine, from every shard that had it, newest first.
func Of(ctx context.Context, a *app.App, f *fleet.Fleet, shards []fleet.Shard, machine string) (records []*bigfleetv1alpha1.DecisionRecord, more bool, err error) {
	got, err := gather(ctx, a, f, shards, []subject.Subject{{Kind: subject.Machine, Name: machine}}, Span{Limit: machineRecords}, func(*bigfleetv1alpha1.DecisionRecord) bool { return true })
	return got.records, got.more, err
}

// Bounds of what one question reads: records of a machine, and machines behind one name of a Node.
const (
	machineRecords = 100
	nodeMachines   = 10
)

// MachinesOf finds the machines that were behind a Node, the newest first: in the decision logs, which know Nodes that are gone, and
// among the machines there are. A Node that no record names may have the id of its machine. left is how many further machines the records
// name.
func MachinesOf(ctx context.Context, f *fleet.Fleet, shards []fleet.Shard, node string) (machines []string, left int, failed error) {
	answers, failed := fleet.Each(ctx, f, shards, "looking for node/"+node, func(ctx context.Context, sh fleet.Shard) ([]string, error) {
		named := func(r *bigfleetv1alpha1.DecisionRecord) bool { return r.GetNodeName() == node } // a shard of an earlier version knows no Nodes
		got, err := read(ctx, sh, subject.Subject{Kind: subject.Node, Name: node}, Span{Limit: machineRecords}, named)
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, r := range got.records {
			ids = append(ids, r.GetMachineId())
		}
		if len(ids) > 0 {
			return ids, nil
		}
		req := &bigfleetv1alpha1.ListMachinesRequest{PageSize: 5000, States: []bigfleetv1alpha1.MachineState{bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED, bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING}}
		for {
			page, err := sh.Read.ListMachines(ctx, connect.NewRequest(req))
			if err != nil {
				return nil, err
			}
			for _, m := range page.Msg.GetMachines() {
				if m.GetNodeName() == node {
					return []string{m.GetMachine().GetId()}, nil
				}
			}
			if req.PageToken = page.Msg.GetNextPageToken(); req.PageToken == "" {
				return nil, nil
			}
		}
	})
	var ids []string
	for _, list := range answers {
		if list != nil {
			ids = append(ids, *list...)
		}
	}
	if len(ids) == 0 {
		return []string{node}, 0, failed
	}
	machines, left = distinct(ids, nodeMachines)
	return machines, left, nil
}

// distinct is the first ids that differ, and how many more there are.
func distinct(ids []string, most int) (first []string, left int) {
	for _, id := range ids {
		if !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	shown := min(len(first), most)
	return first[:shown], len(first) - shown
}
