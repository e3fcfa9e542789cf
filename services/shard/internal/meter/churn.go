package meter

import (
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// churn is engine_actions_per_net_change (ENG-22): how many machines moved within the last hour for each machine by which
// demand changed. Demand is compared per cluster and nominal cycle, so that what goes up in one cluster and down in
// another is a change of both, and demand that comes and goes within an hour is one as well.
type churn struct {
	moves atomic.Int64 // since the last slot

	last  map[string]int // machines asked for, by cluster; nil before the first plan
	next  int64          // Mono of the end of the present slot
	slots []slot         // oldest first
	total slot
}

type slot struct {
	at         int64
	moves, net int64
}

const churnSpan = int64(time.Hour)

// action counts a move: a machine taken, bought or given back. The Bootstrap of a machine that was bought for the same
// need is the second half of one move, and a Delete moves nothing between clusters.
func (c *churn) action(s core.Sample) {
	if s.Label2 == core.ByHandover || s.Label1 == engine.Delete.String() {
		return
	}
	c.moves.Add(s.Value)
}

// publish closes the slot if its time is over.
func (c *churn) publish(p *core.Publish) {
	if p.Status.Cycle == 0 || p.At < c.next {
		return
	}
	every := p.Status.Config.CycleInterval
	c.next = p.At + every
	s := slot{at: p.At, moves: c.moves.Swap(0)}
	now := make(map[string]int, len(p.Needs))
	for _, b := range p.Needs {
		n := 0
		for _, d := range b.Demand {
			n += d.Machines
		}
		now[b.Cluster] = n
		s.net += distance(n, c.last[b.Cluster])
	}
	for name, n := range c.last {
		if _, still := now[name]; !still {
			s.net += distance(n, 0)
		}
	}
	c.last = now
	c.slots = append(c.slots, s)
	c.total.moves, c.total.net = c.total.moves+s.moves, c.total.net+s.net
	old := 0
	for ; c.slots[old].at <= p.At-churnSpan; old++ {
		c.total.moves, c.total.net = c.total.moves-c.slots[old].moves, c.total.net-c.slots[old].net
	}
	c.slots = c.slots[old:]
}

func distance(a, b int) int64 { return int64(max(a-b, b-a)) }

// ratio is moves per machine of change. Moves without any change count as if there had been one.
func (c *churn) ratio() float64 { return float64(c.total.moves) / float64(max(c.total.net, 1)) }
