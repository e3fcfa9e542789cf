package workload

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Shape is the size of one request.
type Shape struct {
	CPU    int64 // thousandths of a core
	Memory int64 // bytes
}

// Requests is W-requests: the CapacityRequests of one cluster in columns. Making Kubernetes objects of them is the
// operator's business; this module does not know Kubernetes.
type Requests struct {
	// Profiles are rows without amounts: requirements, spread, priority and buckets.
	Profiles []*pb.CapacityNeed
	Shapes   []Shape

	Profile []uint16
	Shape   []uint8
	Gang    []int32 // number of its gang, or -1
}

// NewRequests is the plain form: n requests of 8 profiles in 12 shapes, no gangs.
func NewRequests(n int, seed uint64) *Requests { return newRequests(n, 8, 0, seed) }

// NewGangRequests is the second form: 400 profiles and 200 gangs of up to 32 members; half of the requests are in gangs.
func NewGangRequests(n int, seed uint64) *Requests { return newRequests(n, 400, 200, seed) }

func newRequests(n, profiles, gangs int, seed uint64) *Requests {
	out := &Requests{Profile: make([]uint16, n), Shape: make([]uint8, n), Gang: make([]int32, n)}
	for _, cpu := range []int64{100, 250, 500, 1_000, 2_000, 4_000} {
		out.Shapes = append(out.Shapes, Shape{cpu, cpu << 20}, Shape{cpu, 4 * cpu << 20})
	}
	types := catalogue()
	r := Stream(seed, "requests/profile")
	for p := range profiles {
		need := &pb.CapacityNeed{
			Priority: priorities[p%len(priorities)], InterruptionPenaltyBucket: pb.PenaltyBucket(buckets[p/5%len(buckets)]),
			ReclamationPenaltyBucket: pb.PenaltyBucket(worth[p/30%len(worth)]),
		}
		if p%3 == 1 || p >= combinations {
			need.Requirements = append(need.Requirements, &pb.NodeSelectorRequirement{
				Key: typeLabel, Operator: pb.NodeSelectorRequirement_OPERATOR_IN,
				Values: []string{types[p%len(types)].Name, types[(p+1+r.IntN(5))%len(types)].Name},
			})
		}
		if p%10 == 2 {
			need.Spread = []*pb.TopologySpread{{TopologyKey: zoneLabel, MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}}
		}
		out.Profiles = append(out.Profiles, need)
	}
	draw := Stream(seed, "requests/draw")
	for i := range n {
		out.Gang[i] = -1
		out.Profile[i] = uint16(draw.IntN(profiles))
		out.Shape[i] = uint8(draw.IntN(len(out.Shapes)))
	}
	if gangs > 0 {
		out.gangs(gangs, seed)
	}
	return out
}

// gangs puts half of the requests, at most 32 each, into gangs. Members are alike.
func (q *Requests) gangs(gangs int, seed uint64) {
	r := Stream(seed, "requests/gang")
	order := r.Perm(len(q.Gang))
	size := max(1, min(32, len(order)/2/gangs))
	for gang := range gangs {
		if len(order) < size {
			return
		}
		members := order[:size]
		order = order[size:]
		for _, i := range members {
			q.Gang[i], q.Profile[i], q.Shape[i] = int32(gang), q.Profile[members[0]], q.Shape[members[0]]
		}
	}
}

// Total is what all requests ask for together: what a roll-up must add up to.
func (q *Requests) Total() Shape {
	var out Shape
	for _, shape := range q.Shape {
		out.CPU += q.Shapes[shape].CPU
		out.Memory += q.Shapes[shape].Memory
	}
	return out
}

// Sum is the SHA-256 of the requests.
func (q *Requests) Sum() string {
	d := newDigest()
	for _, p := range q.Profiles {
		d.strings([]string{rowText(p)})
	}
	for _, s := range q.Shapes {
		d.numbers(s.CPU, s.Memory)
	}
	d.numbers(q.Profile, q.Shape, q.Gang)
	return d.hex()
}

// rowText writes a row without amounts. Not its protobuf bytes, because those are not promised to stay.
func rowText(n *pb.CapacityNeed) string {
	text := fmt.Sprint(n.GetPriority(), int32(n.GetInterruptionPenaltyBucket()), int32(n.GetReclamationPenaltyBucket()))
	for _, r := range n.GetRequirements() {
		text += fmt.Sprint(r.GetKey(), int32(r.GetOperator()), r.GetValues())
	}
	for _, s := range n.GetSpread() {
		text += fmt.Sprint(s.GetTopologyKey(), s.GetMaxSkew(), int32(s.GetWhenUnsatisfiable()))
	}
	return text
}

// Period is how often an operator of W-sessions sends.
const Period = 10 * time.Second

// Sessions is W-sessions(n): n operators that send a roll-up of about 2 KB each per Period.
type Sessions struct {
	World *World          // cluster i is operator i
	Phase []time.Duration // when in the period operator i sends
}

const (
	sessionBytes  = 2048
	sessionRowMax = 24
)

// NewSessions draws the roll-ups and the phases, spread over the period.
func NewSessions(n int, seed uint64) *Sessions {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = sessionRowMax
	}
	w := &World{Fleet: newFleet(0, seed, 1, catalogue(), catalogueWeights()), Demand: newDemand(counts), churn: Stream(seed, "churn")}
	r := Stream(seed, "sessions/row")
	d := w.Demand
	for row := range d.Rows() {
		d.combine(row, 73*(row%sessionRowMax)+row/sessionRowMax)
		d.UnitCPU[row], d.UnitMemory[row] = 250<<r.IntN(5), 1<<29<<r.IntN(4)
		members := int64(1 + r.IntN(40))
		d.CPU[row], d.Memory[row] = members*d.UnitCPU[row], members*d.UnitMemory[row]
	}
	out := &Sessions{World: w, Phase: make([]time.Duration, n)}
	phase := Stream(seed, "sessions/phase")
	for i := range out.Phase {
		out.Phase[i] = time.Duration(phase.Int64N(int64(Period)))
	}
	return out
}

// Rollup is what operator i sends: as many rows as make 2 KB.
func (s *Sessions) Rollup(i int32) *pb.ClusterCapacityNeeds {
	out := s.World.Rollup(i)
	for proto.Size(out) > sessionBytes && len(out.Needs) > 1 {
		out.Needs = out.Needs[:len(out.Needs)-1]
	}
	return out
}

// Sum is the SHA-256 of the sessions.
func (s *Sessions) Sum() string {
	d := newDigest()
	s.World.Demand.sum(d)
	for _, p := range s.Phase {
		d.numbers(int64(p))
	}
	return d.hex()
}
