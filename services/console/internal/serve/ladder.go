package serve

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

// watchWindow streams the rows of one window of all needs that match, and all of them in numbers. A frame holds the rows that changed,
// and the order of the window when that did.
func (c *Console) watchWindow(ctx context.Context, q *pb.WatchNeedsRequest, out *connect.ServerStream[pb.WatchNeedsResponse]) error {
	var looked []*sources.Needs // what the last frame was made of
	var keys []string
	sent := map[string]*pb.FleetNeed{}
	complete := false
	return c.every(ctx, func() error {
		frame := &pb.WatchNeedsResponse{Sources: c.Sources.Statuses()}
		needs, known, age := c.needs(q.GetShardId())
		frame.AgeMillis = age.Milliseconds()
		if complete && slices.Equal(needs, looked) {
			frame.SnapshotComplete = true
			return out.Send(frame)
		}
		complete, looked = complete || known, needs
		rows, summary := selected(q, needs)
		next := make(map[string]*pb.FleetNeed, len(rows))
		order := make([]string, 0, len(rows))
		for _, r := range rows {
			if next[r.GetKey()] = r; sent[r.GetKey()] != r {
				frame.Upserts = append(frame.Upserts, r)
			}
			order = append(order, r.GetKey())
		}
		for k := range maps.Keys(sent) {
			if next[k] == nil {
				frame.RemovedKeys = append(frame.RemovedKeys, k)
			}
		}
		slices.Sort(frame.RemovedKeys)
		if !slices.Equal(order, keys) {
			summary.Keys, keys = order, order
		}
		sent, frame.Summary, frame.SnapshotComplete = next, summary, complete
		return out.Send(frame)
	})
}

// needs are the newest readings, whether none is still to come, and the age of the oldest.
func (c *Console) needs(shard string) (out []*sources.Needs, known bool, age time.Duration) {
	all := c.Sources.Shards()
	known = len(all) > 0
	for _, x := range all {
		if shard != "" && x.ID != shard {
			continue
		}
		st := x.Snapshot()
		if age = max(age, st.NeedsAge()); st.Needs != nil {
			out = append(out, st.Needs)
		} else if st.Err == nil {
			known = false
		}
	}
	return out, known, age
}

// selected is the window that a viewer asks for, and what matches in numbers.
func selected(q *pb.WatchNeedsRequest, needs []*sources.Needs) (rows []*pb.FleetNeed, sum *pb.NeedSummary) {
	all := sources.Merged(needs)
	first, last := int(q.GetWindow().GetOffset()), int(q.GetWindow().GetOffset()+q.GetWindow().GetLimit())
	sum = &pb.NeedSummary{Offset: q.GetWindow().GetOffset()}
	var counts [len(standings)]int32
	part := strings.ToLower(q.GetTextPart())
	for _, r := range all {
		n := r.GetNeed()
		at := standing(n)
		if !wanted(q, r) || !stands(q.GetStanding(), n, at) ||
			q.MinPriority != nil && n.GetNeed().GetPriority() < q.GetMinPriority() ||
			part != "" && !strings.Contains(strings.ToLower(n.GetDetailText()), part) ||
			q.GetGangsOnly() && !gang(n) {
			continue
		}
		counts[at]++
		place := int(sum.Total)
		if sum.Total++; at == short && sum.Cut == 0 {
			sum.Cut = sum.Total
		}
		sum.LargestCpu = max(sum.LargestCpu, cpuOf(n))
		if place >= first && place < last {
			rows = append(rows, r)
		}
	}
	sum.ByStanding = map[string]int32{}
	for at, n := range counts {
		if n > 0 {
			sum.ByStanding[standings[at]] = n
		}
	}
	return rows, sum
}

// standings are how needs stand, in words.
var standings = [...]string{"met", "on the way", "held back", "short"}

const (
	met = iota
	onTheWay
	heldBack
	short
)

func standing(n *pb.NeedView) int {
	switch {
	case n.GetSatisfied() && n.GetStatus() != pb.NeedState_NEED_STATE_ON_THE_WAY:
		return met
	case n.GetStatus() == pb.NeedState_NEED_STATE_ON_THE_WAY || n.GetOnTheWayCount() > 0:
		return onTheWay
	case n.GetHold() != 0 || n.GetAcquisitionParked():
		return heldBack
	}
	return short
}

func stands(wanted string, n *pb.NeedView, at int) bool {
	return wanted == "" || wanted == standings[at] || wanted == "waiting" && !n.GetSatisfied()
}

func gang(n *pb.NeedView) bool {
	return slices.ContainsFunc(n.GetNeed().GetRequirements(), func(r *pb.NodeSelectorRequirement) bool {
		return r.GetOperator() == pb.NodeSelectorRequirement_OPERATOR_SAME
	})
}

// cpuOf is how much cpu a need asks for, in cores. It is for the width of a bar: what cannot be read counts as one.
func cpuOf(n *pb.NeedView) float64 {
	text := n.GetNeed().GetAggregateResources()["cpu"]
	number, milli := strings.CutSuffix(text, "m")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v <= 0 {
		return 1
	}
	if milli {
		v /= 1000
	}
	return v
}
