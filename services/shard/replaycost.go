package shard

import (
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inspect"
)

// ReplayCost asks a replay what the machines cost over the time of the log.
type ReplayCost struct {
	GroupBy []string // as GetCostRequest
	Points  int      // about so many over the time, 2 at the least
	From    int64    // Unix nanoseconds; 0: the beginning of the log
	To      int64    // Unix nanoseconds; 0: its end
}

// costStep is how far apart costs are looked at first; a longer log makes it double again and again.
const costStep = int64(time.Second)

// costs looks at the machines at even times. How long the log is shows only at its end, so when there are twice as many
// points as were asked for, every other one goes and the next ones come half as often.
type costs struct {
	ReplayCost
	every, next int64 // Unix nanoseconds
	points      []*pb.CostPoint
	done        bool    // the time that was asked for is over
	last        int64   // up to when spent counts; 0 before the first step
	spent       float64 // millionths of a dollar
}

func newCosts(c ReplayCost) *costs {
	c.Points = max(c.Points, 2)
	return &costs{ReplayCost: c, every: costStep}
}

// before is called before each step: what the core shows then has been so until at.
func (x *costs) before(at core.At, c *core.Core) {
	now := int64(at.Wall)
	x.spend(now, c)
	switch {
	case x.next == 0: // the first step of a log: nothing is known before it
		x.next = now + x.every
		if x.From > now {
			x.next = x.From
		}
	case x.done:
	case x.To != 0 && now >= x.To:
		x.points, x.done = append(x.points, x.look(x.To, c)), true
	case now >= x.next:
		x.points = append(x.points, x.look(x.next, c))
		x.next += (now-x.next)/x.every*x.every + x.every
	}
	if len(x.points) >= 2*x.Points {
		kept := x.points[:0]
		for i := 1; i < len(x.points); i += 2 {
			kept = append(kept, x.points[i])
		}
		last := x.points[len(x.points)-1].AtUnixNanos
		x.points, x.every = kept, 2*x.every
		x.next = last + x.every
	}
}

// spend books what exists from the step before until now, as far as it is in the time that was asked for. The points have no part in it.
func (x *costs) spend(now int64, c *core.Core) {
	from, to := max(x.last, x.From), now
	if x.To != 0 {
		to = min(now, x.To)
	}
	if x.last != 0 && to > from {
		x.spent += float64(c.CostPerHour()) * time.Duration(to-from).Hours()
	}
	x.last = max(x.last, now)
}

func (x *costs) end(at int64, c *core.Core) []*pb.CostPoint {
	x.spend(at, c)
	if x.done || at < x.From {
		return x.points
	}
	return append(x.points, x.look(at, c))
}

func (x *costs) look(at int64, c *core.Core) *pb.CostPoint {
	bill := inspect.NewBill(x.GroupBy)
	const chunk = 4096
	for after, more := "", true; more; {
		ids := c.Ids(after, chunk)
		more = len(ids) == chunk
		for _, id := range ids {
			if m, ok := c.Machine(id); ok {
				bill.Add(&m)
			}
			after = id
		}
	}
	return bill.Point(at)
}
