package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/clusters"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

const pathRecords = 1000 // of a node or cluster, looked at for one path

// GetPodPath tells what happened to one Pod, hop by hop (OPS-6.9). Times come from three clocks: the cluster's API server, the
// shard's and the provider's.
func (c *Console) GetPodPath(ctx context.Context, req *connect.Request[pb.GetPodPathRequest]) (*connect.Response[pb.GetPodPathResponse], error) {
	if c.Clusters == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("this console reads no cluster: start it with --kubeconfig to see the paths of Pods"))
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	pod, err := c.Clusters.Pod(ctx, req.Msg.GetClusterId(), req.Msg.GetNamespace(), req.Msg.GetPod())
	if err != nil {
		return nil, err
	}
	p := &way{pod: pod, out: &pb.GetPodPathResponse{NodeName: pod.Node}}
	for _, shard := range c.Sources.Shards() {
		if p.read(ctx, shard, req.Msg.GetClusterId()) {
			break
		}
	}
	return connect.NewResponse(p.response()), nil
}

// way is a Pod and what a shard has recorded of its way.
type way struct {
	pod                         clusters.Pod
	out                         *pb.GetPodPathResponse
	rolled                      *pb.DecisionRecord
	planned, bought, configured *pb.DecisionRecord
}

// need finds the Pod's row: the first of its rows that the shard knows. While the Pod waits, the need's sentence says why.
func (p *way) need(ctx context.Context, shard *sources.Shard, cluster string) {
	for _, row := range p.pod.Rows {
		stream, err := shard.Read.InspectNeeds(ctx, connect.NewRequest(&pb.InspectNeedsRequest{ClusterId: cluster, RowId: row}))
		if err != nil {
			return
		}
		for stream.Receive() {
			if n := stream.Msg().GetNeed(); n != nil {
				p.out.RowId = row
				if p.pod.Node == "" && !n.GetSatisfied() {
					p.pod.Waits = n.GetDetailText()
				}
			}
		}
		_ = stream.Close()
		if p.out.RowId != "" {
			return
		}
	}
}

// read finds the records of the Pod's cluster and node in one shard.
func (p *way) read(ctx context.Context, shard *sources.Shard, cluster string) bool {
	history := func(q *pb.GetMachineHistoryRequest) []*pb.DecisionRecord {
		q.PageSize = pathRecords
		got, err := shard.Read.GetMachineHistory(ctx, connect.NewRequest(q))
		if err != nil {
			return nil
		}
		return got.Msg.GetRecords()
	}
	if p.pod.Requested.IsZero() && p.pod.Node == "" {
		return false
	}
	since := p.pod.Created.Add(-time.Second).UnixNano()
	mine := history(&pb.GetMachineHistoryRequest{Subject: &pb.GetMachineHistoryRequest_ClusterId{ClusterId: cluster}, SinceUnixNanos: since})
	if len(mine) == 0 {
		return false
	}
	p.out.ShardId = shard.ID
	p.need(ctx, shard, cluster)
	for _, r := range mine { // newest first: the first one after the request stays
		if r.GetType() == pb.RecordType_RECORD_TYPE_ROLLUP_ACCEPTED && r.GetAtUnixNanos() >= p.pod.Requested.UnixNano() {
			p.rolled = r
		}
	}
	if p.pod.Node == "" {
		var row []*pb.DecisionRecord
		for _, r := range mine {
			if r.GetRowId() == p.out.RowId && p.out.RowId != "" {
				row = append(row, r)
			}
		}
		p.steps(shard, row)
		return true
	}
	for _, r := range history(&pb.GetMachineHistoryRequest{Subject: &pb.GetMachineHistoryRequest_NodeName{NodeName: p.pod.Node}}) {
		p.out.MachineId = r.GetMachineId()
		break
	}
	if p.out.MachineId != "" { // records from before it joined name no node
		p.steps(shard, history(&pb.GetMachineHistoryRequest{Subject: &pb.GetMachineHistoryRequest_MachineId{MachineId: p.out.MachineId}}))
	}
	return true
}

// steps reads the newest way of a machine into a cluster from its records, newest first.
func (p *way) steps(shard *sources.Shard, records []*pb.DecisionRecord) {
	for _, r := range records {
		ended := r.GetType() == pb.RecordType_RECORD_TYPE_ENDED && r.GetOutcome() == "success"
		switch kind := r.GetKind(); {
		case ended && r.GetToState() == pb.MachineState_MACHINE_STATE_CONFIGURED:
			if p.configured != nil {
				return // how it came to the cluster before
			}
			p.configured = shard.Worded(r)
		case ended && kind == pb.ActionKind_ACTION_KIND_PROVISION && r.GetToState() == pb.MachineState_MACHINE_STATE_IDLE:
			p.bought = shard.Worded(r)
		case r.GetType() == pb.RecordType_RECORD_TYPE_STARTED && (kind == pb.ActionKind_ACTION_KIND_PROVISION || kind == pb.ActionKind_ACTION_KIND_BOOTSTRAP || kind == pb.ActionKind_ACTION_KIND_PREEMPT):
			p.planned = shard.Worded(r)
			if p.pod.Node == "" {
				p.out.MachineId = r.GetMachineId()
			}
		}
	}
}

func (p *way) response() *pb.GetPodPathResponse {
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	hop := func(name string, when int64, done, waiting string) {
		say := done
		if when == 0 {
			say = waiting
		}
		p.out.Hops = append(p.out.Hops, &pb.PathHop{Hop: name, AtUnixNanos: when, Sentence: say})
	}
	older := p.planned != nil && p.planned.GetAtUnixNanos() < p.pod.Created.UnixNano()
	said := func(r *pb.DecisionRecord) string {
		if older {
			return "The machine was there before the Pod. " + r.GetDetail()
		}
		return r.GetDetail()
	}
	hop("created", at(p.pod.Created), "The Pod was created in its cluster.", "")
	hop("requested", at(p.pod.Requested), "The pod controller wrote its CapacityRequest.", "It has no CapacityRequest: it fits on nodes that are not BigFleet's, or the pod controller does not run.")
	rolled := p.rolled.GetAtUnixNanos()
	if rolled == 0 {
		rolled = at(p.pod.Acknowledged)
	}
	hop("rolled up", rolled, "The operator reported the demand to shard "+p.out.ShardId+".", "No shard has received it yet: the operator does not run, has no session, or holds its roll-up.")
	hop("planned", p.planned.GetAtUnixNanos(), said(p.planned), "No machine is planned for it yet. "+p.pod.Waits)
	unbought := "No purchase is recorded: a machine that was there is used, or none is on its way."
	if p.configured != nil {
		unbought = "Nothing was bought: a machine that was there is used."
	}
	hop("bought", p.bought.GetAtUnixNanos(), said(p.bought), unbought)
	hop("configured", p.configured.GetAtUnixNanos(), said(p.configured), "No machine is configured for it yet.")
	hop("joined", at(p.pod.Joined), fmt.Sprintf("Node %s joined the cluster.", p.pod.Node), "It has no node yet.")
	hop("ready", at(p.pod.Ready), "The Pod is ready.", "The Pod is not ready.")
	p.out.Sentence = "The Pod is ready on node " + p.pod.Node + "."
	if p.pod.Ready.IsZero() {
		p.out.Sentence = p.pod.Waits
		for _, h := range p.out.Hops {
			if h.GetAtUnixNanos() == 0 && p.out.Sentence == "" {
				p.out.Sentence = h.GetSentence()
			}
		}
	}
	return p.out
}
