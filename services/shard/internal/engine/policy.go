package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// Second is the unit of the constants, in the nanoseconds of the inputs.
const Second int64 = 1_000_000_000

// Policy is the constants of ENG-24. It is fixed in production; tests, simulation and what-if may pass another. A policy
// must not be changed while a Planner that has seen it is in use: pass another one.
type Policy struct {
	GraceTiers   []GraceTier // by gap, largest first; the last one has gap -1 and takes the rest (ENG-15.11)
	ReclaimGrace int64       // seconds (ENG-16.1)
	DrainMargin  int64       // seconds a preempt promise outlives its grace (ENG-5.8)

	DrainEstimate int64 // seconds, at least 1 (ENG-15.9)
	VictimWeights Weights

	Hold Holds // nanoseconds an elastic Idle machine is kept (ENG-16.7)

	ParkAfter, ParkReprobe int64 // nominal cycles (ENG-18.3)

	Sharing                              bool  // ENG-11.1
	StuckAfter, SharingStep, SharingCalm int64 // nanoseconds (ENG-11.11 to 11.13)
	EmptyAfter                           int64 // nanoseconds (ENG-11.17, 11.18); below 0: never

	JoinTimeout          int64 // nanoseconds (ENG-17.3)
	JoinGuardPerMille    int64 // of the Configured machines (ENG-17.4)
	JoinFailures         int32 // in a row (ENG-17.6)
	JoinRetryHold        int64 // nanoseconds (ENG-17.7)
	ExchangeTries        int   // covers per plan (ENG-13.10)
	DomainLooks          int64 // of the Needs of one cluster in a plan, 0: any number (ENG-12.11)
	ShareLooks           int   // machines without use, 0: any number (ENG-11.5)
	ParallelMin, Workers int   // clusters per worker (ENG-14.1); 0 workers means GOMAXPROCS
}

// GraceTier gives Preempts with a gap above Above this many seconds.
type GraceTier struct{ Above, Seconds int64 }

// Weights are the weights of the victim score, in tenths.
type Weights struct{ Priority, Drain, Interruption, Reclamation int64 }

// Holds says how long Idle machines of the elastic types are kept, in nanoseconds. A type cannot be released whose hold
// is not above 0; other types never are, and this type cannot say otherwise (ENG-16.7).
type Holds struct {
	OnDemand, Spot int64
	Spend          int64 // millionths of a dollar that a hold may cost; 0: any amount
	Least          int64 // however dear the machine is
}

// Of returns the hold of a machine, and false for types that are never released.
func (h Holds) Of(c inventory.CapacityType, price int64) (int64, bool) {
	most := h.most(c)
	if h.Spend > 0 && price > 0 {
		most = min(most, max(h.Least, h.Spend*(3600*Second)/price))
	}
	return most, most > 0
}

// Shortest is the shortest hold that a machine of a capacity type can have.
func (h Holds) Shortest(c inventory.CapacityType) (int64, bool) {
	most := h.most(c)
	if h.Spend > 0 {
		return min(most, h.Least), most > 0
	}
	return most, most > 0
}

func (h Holds) most(c inventory.CapacityType) int64 {
	switch c {
	case inventory.OnDemand:
		return h.OnDemand
	case inventory.Spot:
		return h.Spot
	}
	return 0
}

// DefaultPolicy returns the constants of ENG-24.
func DefaultPolicy() *Policy {
	return &Policy{
		GraceTiers:    []GraceTier{{900_000, 10}, {500_000, 30}, {100_000, 120}, {-1, 600}},
		ReclaimGrace:  600,
		DrainMargin:   120,
		DrainEstimate: 30,
		VictimWeights: Weights{Priority: 10, Drain: 1, Interruption: 1, Reclamation: 1},
		Hold:          Holds{OnDemand: 600 * Second, Spot: 60 * Second, Spend: 50_000, Least: 60 * Second},
		ParkAfter:     8, ParkReprobe: 32,
		Sharing:    true,
		StuckAfter: 120 * Second, SharingStep: 600 * Second, SharingCalm: 3600 * Second, EmptyAfter: 300 * Second,
		JoinTimeout: 900 * Second, JoinGuardPerMille: 50, JoinFailures: 3, JoinRetryHold: 3600 * Second,
		ExchangeTries: 256, DomainLooks: 250_000, ShareLooks: 64,
		ParallelMin: 128,
	}
}

// Grace returns the seconds of grace for a priority gap (ENG-15.11).
func (p *Policy) Grace(gap int64) int64 {
	for _, t := range p.GraceTiers {
		if gap > t.Above {
			return t.Seconds
		}
	}
	return p.ReclaimGrace
}

// DrainSeconds is the drain time of a victim's score: what its provider says, else the policy's (ENG-15.9).
func (p *Policy) DrainSeconds(ofMachine int32) int64 {
	if ofMachine > 0 {
		return int64(ofMachine)
	}
	return max(1, p.DrainEstimate)
}

// OrDefault returns p, or the constants of ENG-24 if p is nil. What it returns must not be changed.
func (p *Policy) OrDefault() *Policy {
	if p == nil {
		return defaultPolicy
	}
	return p
}

var defaultPolicy = DefaultPolicy()
