package sources

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	costEvery   = 10 * time.Second // a shard's costs are noted
	costShare   = 500              // noting takes at most this part of a shard's time: a large shard's costs are noted less often
	costLatest  = 2 * time.Minute  // and not later than this
	costTimeout = 10 * time.Second
	costsMax    = 8640 // notes of one dimension: a day
	costGroups  = 12   // the largest groups of a note; the rest is one
	othersName  = "others"
)

// costDimensions are those whose past is kept. Shards know present costs only.
var costDimensions = []string{"cluster", "priority", "provider", "type", "capacity", "zone", "penalty"}

// Costs are what one shard's machines cost since the console follows it.
type Costs struct {
	mu    sync.Mutex
	notes map[string][]*pb.CostPoint // by dimension, oldest first
}

// notes asks for the costs of now, again and again; a shard that does not answer leaves a gap.
func (s *Shard) notes(ctx context.Context) {
	for {
		began := time.Now()
		s.note(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(costEvery, min(costLatest, costShare*time.Since(began)))):
		}
	}
}

func (s *Shard) note(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, costTimeout)
	defer cancel()
	got, err := s.Read.GetCost(ctx, connect.NewRequest(&pb.GetCostRequest{GroupBy: costDimensions, Separate: true}))
	if err != nil || len(got.Msg.GetPoints()) != len(costDimensions) {
		return
	}
	s.costs.mu.Lock()
	defer s.costs.mu.Unlock()
	if s.costs.notes == nil {
		s.costs.notes = map[string][]*pb.CostPoint{}
	}
	for i, d := range costDimensions {
		notes := append(s.costs.notes[d], smaller(got.Msg.GetPoints()[i]))
		s.costs.notes[d] = notes[max(0, len(notes)-costsMax):]
	}
}

// smaller keeps the largest groups of a point.
func smaller(p *pb.CostPoint) *pb.CostPoint {
	rows := slices.DeleteFunc(slices.Clone(p.GetRows()), func(r *pb.CostRow) bool { return r.GetMachines() == 0 }) // what only requests costs nothing
	slices.SortStableFunc(rows, func(a, b *pb.CostRow) int {
		switch x, y := sum(a), sum(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return strings.Compare(strings.Join(a.GetGroup(), "\x00"), strings.Join(b.GetGroup(), "\x00"))
	})
	out := &pb.CostPoint{AtUnixNanos: p.GetAtUnixNanos(), Rows: rows[:min(len(rows), costGroups)]}
	if out.AtUnixNanos == 0 {
		out.AtUnixNanos = time.Now().UnixNano()
	}
	if len(rows) > costGroups {
		rest := &pb.CostRow{Group: []string{othersName}, CostPerHourByState: map[string]float64{}}
		for _, r := range rows[costGroups:] {
			rest.Machines += r.GetMachines()
			rest.ServingPerHour, rest.UnusedPerHour, rest.StuckPerHour = rest.ServingPerHour+r.GetServingPerHour(), rest.UnusedPerHour+r.GetUnusedPerHour(), rest.StuckPerHour+r.GetStuckPerHour()
			for k, v := range r.GetCostPerHourByState() {
				rest.CostPerHourByState[k] += v
			}
		}
		out.Rows = append(out.Rows, rest)
	}
	for _, r := range out.Rows {
		r.Requested, r.Provided = nil, nil // amounts are shown of now only
	}
	return out
}

func sum(r *pb.CostRow) (n float64) {
	for _, v := range r.GetCostPerHourByState() {
		n += v
	}
	return n
}

// Past are the notes of a dimension between two times, thinned to points; known is false for a dimension that is not noted.
func (s *Shard) Past(dimension string, since, until int64, points int) (out []*pb.CostPoint, known bool) {
	if !slices.Contains(costDimensions, dimension) {
		return nil, false
	}
	s.costs.mu.Lock()
	defer s.costs.mu.Unlock()
	var within []*pb.CostPoint
	for _, p := range s.costs.notes[dimension] {
		if p.GetAtUnixNanos() >= since && (until == 0 || p.GetAtUnixNanos() <= until) {
			within = append(within, p)
		}
	}
	step := 1
	if points > 0 && len(within) > points {
		step = (len(within) + points - 1) / points
	}
	for i := (len(within) - 1) % step; i >= 0 && i < len(within); i += step { // the newest is always among them
		out = append(out, within[i])
	}
	return out, true
}

// taken hands the notes to the follower of the same shard at another address.
func (c *Costs) taken() map[string][]*pb.CostPoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.notes
	c.notes = nil
	return notes
}
