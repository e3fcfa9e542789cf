package inspect

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// What is remembered of past cycles: how many, how many actions of each, and how many rows of needs in all, those that
// did not change between two cycles counted once.
const (
	pastCycles  = 512
	pastActions = 1000
	pastRows    = 100_000
)

// past remembers the plans of the last cycles. Blocks of needs that did not change are shared between them.
type past struct {
	mu    sync.Mutex
	plans []*pastPlan // oldest first
	rows  int
}

type pastPlan struct {
	cycle   int64
	needs   []*core.NeedBlock
	actions []core.Record
	total   int
	rows    int           // that the plan before does not have
	view    *core.Publish // for wall clocks and ages
}

// publish is what a reader of needs saw then.
func (p *pastPlan) publish() *core.Publish {
	v := *p.view
	v.Needs, v.Status.Cycle, v.Status.CycleAt = p.needs, p.cycle, v.At
	return &v
}

// Remember keeps the plan of a cycle for CompareCycles. It is called by the loop.
func (s *Server) Remember(p *core.Publish, c *core.Core) {
	x := &pastPlan{cycle: p.Status.Cycle, needs: p.Needs, view: &core.Publish{At: p.At, Offset: p.Offset, Status: core.Status{Config: p.Status.Config}}}
	x.actions, x.total = c.Planned(pastActions)
	s.past.mu.Lock()
	defer s.past.mu.Unlock()
	if n := len(s.past.plans); n > 0 && slices.Equal(s.past.plans[n-1].needs, p.Needs) {
		x.needs = s.past.plans[n-1].needs
	} else {
		var before []*core.NeedBlock
		if n > 0 {
			before = s.past.plans[n-1].needs
		}
		for _, pair := range pairs(before, p.Needs) {
			if pair[1] != nil && pair[0] != pair[1] {
				x.rows += len(pair[1].Rows)
			}
		}
	}
	s.past.plans = append(s.past.plans, x)
	s.past.rows += x.rows
	for len(s.past.plans) > 1 && (len(s.past.plans) > pastCycles || s.past.rows > pastRows) {
		s.past.rows -= s.past.plans[0].rows
		s.past.plans[0] = nil
		s.past.plans = s.past.plans[1:]
	}
}

// find returns the plan of a cycle.
func (p *past) find(cycle int64) (*pastPlan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := slices.BinarySearchFunc(p.plans, cycle, func(x *pastPlan, c int64) int { return int(x.cycle - c) })
	if ok {
		return p.plans[i], nil
	}
	if len(p.plans) == 0 {
		return nil, notFound("no cycle has run in this process yet")
	}
	return nil, notFound(fmt.Sprintf("cycle %d is no longer in memory; cycles %d to %d are, and `bigfleet replay` reads older ones from the decision log",
		cycle, p.plans[0].cycle, p.plans[len(p.plans)-1].cycle))
}

// at returns the plan of a cycle; without one the last that had ended at a time, and without that too the newest.
func (p *past) at(cycle, wall int64) (*pastPlan, error) {
	if cycle != 0 {
		return p.find(cycle)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.plans) == 0 {
		return nil, notFound("no cycle has run in this process yet")
	}
	if wall == 0 {
		return p.plans[len(p.plans)-1], nil
	}
	i := sort.Search(len(p.plans), func(i int) bool { return p.plans[i].view.Wall(p.plans[i].view.At) > wall })
	if i == 0 {
		first := p.plans[0].view
		return nil, notFound(fmt.Sprintf("the oldest cycle in memory is of %s (cycle %d); `bigfleet replay` reads older ones from the decision log",
			time.Unix(0, first.Wall(first.At)).UTC().Format(time.RFC3339), p.plans[0].cycle))
	}
	return p.plans[i-1], nil
}

// CompareCycles compares the plans of two cycles of this process.
func (s *Server) CompareCycles(ctx context.Context, r *connect.Request[pb.CompareCyclesRequest]) (*connect.Response[pb.CompareCyclesResponse], error) {
	done, err := s.reads.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	q := r.Msg
	if epoch := s.cfg.View().Status.Epoch; q.ShardEpoch != 0 && q.ShardEpoch != epoch {
		return nil, notFound(fmt.Sprintf("this process has epoch %d; plans of epoch %d are in the decision log, which `bigfleet replay` reads", epoch, q.ShardEpoch))
	}
	a, err := s.past.at(q.FirstCycle, q.FirstAtUnixNanos)
	if err != nil {
		return nil, err
	}
	b, err := s.past.at(q.SecondCycle, q.SecondAtUnixNanos)
	if err != nil {
		return nil, err
	}
	if b.cycle < a.cycle {
		return nil, rpc.NewError(connect.CodeInvalidArgument, "the second cycle or time must be the later one")
	}
	for _, p := range []*pastPlan{a, b} {
		if p.total > len(p.actions) {
			return nil, rpc.NewError(connect.CodeResourceExhausted, fmt.Sprintf("cycle %d planned %d actions, of which %d are still in memory", p.cycle, p.total, len(p.actions)))
		}
	}
	out := &pb.CompareCyclesResponse{FirstCycle: a.cycle, SecondCycle: b.cycle, Removed: s.only(a, b, q.ClusterId), Added: s.only(b, a, q.ClusterId)}
	out.Needs = changes(a, b, q.ClusterId)
	return connect.NewResponse(out), nil
}

// only lists the actions of one plan that the other lacks.
func (s *Server) only(in, notIn *pastPlan, cluster string) (out []*pb.DecisionRecord) {
	type what struct{ machine, cluster, cause string }
	key := func(r *core.Record) what { return what{r.Machine, r.Cluster, r.Kind.String()} }
	other := map[what]bool{}
	for i := range notIn.actions {
		other[key(&notIn.actions[i])] = true
	}
	for i := range in.actions {
		r := &in.actions[i]
		if !other[key(r)] && (cluster == "" || r.Cluster == cluster || r.PreemptorCluster == cluster) {
			out = append(out, convert.Record(r, s.cfg.ShardID))
		}
	}
	return out
}

// changes lists the needs whose verdict differs, by cluster, then those that are gone or changed, then new ones.
func changes(a, b *pastPlan, only string) (out []*pb.NeedChange) {
	for _, pair := range pairs(a.needs, b.needs) {
		before, after := pair[0], pair[1]
		if before == after || only != "" && blockName(before, after) != only {
			continue
		}
		seen := map[string]bool{}
		for _, x := range rowsOf(before) {
			seen[rowKey(x)] = true
			y, still := rowIn(after, x)
			switch {
			case !still:
				out = append(out, &pb.NeedChange{Before: needView(a.view, x)})
			case differs(x.NeedRow, y.NeedRow):
				out = append(out, &pb.NeedChange{Before: needView(a.view, x), After: needView(b.view, y)})
			}
		}
		for _, y := range rowsOf(after) {
			if !seen[rowKey(y)] {
				out = append(out, &pb.NeedChange{After: needView(b.view, y)})
			}
		}
	}
	return out
}

// pairs joins two lists of blocks, both by cluster.
func pairs(a, b []*core.NeedBlock) (out [][2]*core.NeedBlock) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Cluster < b[0].Cluster:
			out, a = append(out, [2]*core.NeedBlock{a[0], nil}), a[1:]
		case len(a) == 0 || b[0].Cluster < a[0].Cluster:
			out, b = append(out, [2]*core.NeedBlock{nil, b[0]}), b[1:]
		default:
			out, a, b = append(out, [2]*core.NeedBlock{a[0], b[0]}), a[1:], b[1:]
		}
	}
	return out
}

func blockName(a, b *core.NeedBlock) string {
	if a != nil {
		return a.Cluster
	}
	return b.Cluster
}

func rowsOf(b *core.NeedBlock) (out []row) {
	if b == nil {
		return nil
	}
	for i := range b.Rows {
		out = append(out, row{b.Cluster, &b.Rows[i], b.Place(i)})
	}
	return out
}

func rowKey(r row) string { return r.Form.Fingerprint + "\x00" + r.Group }

func rowIn(b *core.NeedBlock, x row) (row, bool) {
	for _, y := range rowsOf(b) {
		if strings.Compare(rowKey(x), rowKey(y)) == 0 {
			return y, true
		}
	}
	return row{}, false
}

// differs compares what people would call the verdict: how the row stands, why, by how much, and where.
func differs(x, y *core.NeedRow) bool {
	a, b := &x.Verdict, &y.Verdict
	return a.Status != b.Status || x.Detail() != y.Detail() || a.Reason != b.Reason || a.Hold != b.Hold || x.Domain != y.Domain ||
		a.Cost != b.Cost || a.Claimed != b.Claimed || !slices.Equal(x.Residual, y.Residual)
}
