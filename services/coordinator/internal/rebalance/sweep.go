package rebalance

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	// waitingMax bounds the shortfalls that are named as waiting.
	waitingMax = 100
	// verdictsMax bounds the donors named in one proposal.
	verdictsMax = 50
	// looksMax bounds one sweep: what is left comes with the next one, in the same order.
	looksMax = 200_000
	// reportsMin is in how many reports a shortfall must have been (COORD-12.3).
	reportsMin = 2
	// donationMin is what the donor cap never goes below in tiers 1 and 2, which disturb no workload (COORD-12.9). A percentage
	// of a small shard is less than one machine.
	donationMin = 10
)

// Shard is what a sweep knows of one shard.
type Shard struct {
	ID, Provider string
	Draining     bool
	Fresh        bool // its last report is
	Moves        bool // it takes part in moves
	Quarantined  bool // it holds a roll-up back
	EpochChanged bool // it restarted within the last two minutes
	Machines     int32
	Supply       []Bucket
	Shortfalls   []Shortfall
}

// Flow is an earlier move. It delays moves between its two shards: back for the flow cooldown, on in the same direction only until the
// recipient has reported what it still lacks.
type Flow struct {
	From, To, Fingerprint string
	Kind                  Kind
	Open                  bool
	Aborted               bool  // nothing was handed over: asking again at once would fail again
	AgeSeconds            int64 // since it ended
	// Cooling is how many of the machines the recipient got may not move again yet.
	Cooling int32
}

// Input of a Sweep.
type Input struct {
	Shards []Shard // by id
	Policy *v1.RebalancePolicy
	Flows  []Flow
	// Room is how many further machine exceptions the fleet may have.
	Room int64
	// Slice is how many quota units a shard has for a region, if there is a row.
	Slice func(provider, region, shard string) (units int32, limited bool)
}

// Proposal is one move that should be made.
type Proposal struct {
	Tier      v1.MoveTier
	From, To  string
	Provider  string
	Bucket    Bucket
	Shortfall *Shortfall
	Wanted    int32
	Reason    string
	Donors    []*v1.DonorVerdict
}

// Waiting is a shortfall for which there are machines, none of which may move now.
type Waiting struct {
	To        string
	Shortfall *Shortfall
	Donors    []*v1.DonorVerdict
}

type pair struct{ a, b string }

// slot is a bucket of a shard, as far as a move names it: type, zone and capacity type.
type slot struct {
	shard string
	kind  Kind
}

// sweep is one run.
type sweep struct {
	in      Input
	cooling map[pair]int64 // by donor and recipient: seconds left; -1 while a move between them is open
	busy    map[slot]bool  // (donor, bucket) with an open move
	waiting map[pair]bool  // (recipient, fingerprint) with an open move
	held    map[slot]int32
	given   map[string]int32 // by donor, this sweep
	memo    map[lookup][]candidate
	pools   *pools
	looks   int
	out     []Proposal
	waits   []Waiting
}

type lookup struct {
	provider int
	req      *Requirements
	unit     *Vector
	tier     v1.MoveTier
}

type candidate struct {
	donor   *Shard
	bucket  *Bucket
	surplus int32
}

// Sweep returns the moves that should be made now, and what waits for one, both in the order of what they serve.
func Sweep(in Input) ([]Proposal, []Waiting) {
	s := &sweep{in: in, cooling: map[pair]int64{}, busy: map[slot]bool{},
		waiting: map[pair]bool{}, held: map[slot]int32{}, given: map[string]int32{}, memo: map[lookup][]candidate{}}
	s.pools = newPools(in.Shards)
	room := int64(in.Policy.GetMaxOpenMoves())
	for _, f := range in.Flows {
		if f.Open {
			room--
			s.busy[slot{f.From, f.Kind.short()}], s.waiting[pair{f.To, f.Fingerprint}] = true, true
		}
		s.cool(f)
		s.held[slot{f.To, f.Kind.short()}] += f.Cooling
	}
	queue := s.eligible()
	heap.Init(queue)
	for queue.Len() > 0 && int64(len(s.out)) < room && s.in.Room > 0 && s.looks < looksMax {
		need := heap.Pop(queue).(need)
		s.serve(need)
	}
	return s.out, s.waits
}

// cool notes for how long a move delays others between its two shards (COORD-12.9).
func (s *sweep) cool(f Flow) {
	on, back := pair{f.From, f.To}, pair{f.To, f.From}
	if f.Open {
		s.cooling[on], s.cooling[back] = -1, -1
		return
	}
	cooldown := s.in.Policy.GetFlowCooldownSeconds()
	again := cooldown
	if !f.Aborted {
		again = min(cooldown, slices.Min(s.in.Policy.GetAgeGatesSeconds()))
	}
	for between, seconds := range map[pair]int64{on: again, back: cooldown} {
		if left := seconds - f.AgeSeconds; left > 0 && s.cooling[between] >= 0 {
			s.cooling[between] = max(s.cooling[between], left)
		}
	}
}

// need is one shortfall and its shard.
type need struct {
	shard     *Shard
	provider  int // number of its provider; numbers hash faster than names, and every shortfall is looked up
	shortfall *Shortfall
}

// needs is a heap in the order of COORD-12.4.
type needs []need

func (n needs) Len() int      { return len(n) }
func (n needs) Swap(i, j int) { n[i], n[j] = n[j], n[i] }
func (n needs) Less(i, j int) bool {
	x, y := n[i], n[j]
	return cmp.Or(cmp.Compare(y.shortfall.Priority, x.shortfall.Priority), cmp.Compare(y.shortfall.AgeSeconds, x.shortfall.AgeSeconds),
		cmp.Compare(x.shard.ID, y.shard.ID), cmp.Compare(x.shortfall.Fingerprint, y.shortfall.Fingerprint)) < 0
}
func (n *needs) Push(x any) { *n = append(*n, x.(need)) }
func (n *needs) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

// eligible are the shortfalls that may be served by others at all (COORD-12.3).
func (s *sweep) eligible() *needs {
	out := &needs{}
	youngest := slices.Min(s.in.Policy.GetAgeGatesSeconds())
	for i := range s.in.Shards {
		sh := &s.in.Shards[i]
		if !sh.Fresh || !sh.Moves || sh.Quarantined || sh.Draining {
			continue
		}
		provider := s.pools.provider(sh.Provider)
		for j := range sh.Shortfalls {
			f := &sh.Shortfalls[j]
			n := need{sh, provider, f}
			if Eligible(f) && f.AgeSeconds >= youngest && s.anybody(n) && !s.waiting[pair{sh.ID, f.Fingerprint}] {
				*out = append(*out, n)
			}
		}
	}
	return out
}

// Eligible reports whether a shortfall could ever be resolved by another shard.
func Eligible(f *Shortfall) bool {
	return f.AgeSeconds > 0 && !f.Requirements.Same && !f.TopologyBound &&
		f.Unmet != v1.UnmetReason_UNMET_REASON_TOPOLOGY_UNSATISFIABLE && f.Reports >= reportsMin && len(f.Deficit) > 0
}

// anybody reports whether some bucket could serve a need. Most needs of a fleet that is short all over are left out here.
func (s *sweep) anybody(n need) bool {
	for tier := v1.MoveTier_MOVE_TIER_IDLE; tier <= s.in.Policy.GetMaxTier(); tier++ {
		if n.shortfall.AgeSeconds >= s.in.Policy.GetAgeGatesSeconds()[tier-1] && len(s.candidates(n, tier)) > 0 {
			return true
		}
	}
	return false
}

// serve tries the tiers in order and proposes at most one move for a shortfall.
func (s *sweep) serve(n need) {
	var verdicts []*v1.DonorVerdict
	for tier := v1.MoveTier_MOVE_TIER_IDLE; tier <= s.in.Policy.GetMaxTier(); tier++ {
		if gate := s.in.Policy.GetAgeGatesSeconds()[tier-1]; n.shortfall.AgeSeconds < gate {
			continue
		}
		best, want, found := s.choose(n, tier, &verdicts)
		if !found {
			continue
		}
		s.propose(n, tier, best, want, verdicts)
		return
	}
	if len(verdicts) > 0 && len(s.waits) < waitingMax {
		s.waits = append(s.waits, Waiting{n.shard.ID, n.shortfall, verdicts})
	}
}

// choose picks the donor: cheaper, then larger surplus, then id (COORD-12.8).
func (s *sweep) choose(n need, tier v1.MoveTier, verdicts *[]*v1.DonorVerdict) (candidate, int32, bool) {
	for _, c := range s.candidates(n, tier) {
		s.looks++
		want, why := s.amount(n, tier, c)
		if want > 0 {
			return c, want, true
		}
		if len(*verdicts) < verdictsMax {
			*verdicts = append(*verdicts, &v1.DonorVerdict{ShardId: c.donor.ID, Reason: fmt.Sprintf("%s %s, tier %d: %s", c.bucket.Kind.InstanceType, c.bucket.Kind.Zone, tier, why)})
		}
	}
	return candidate{}, 0, false
}

// amount is how many machines a candidate gives to a need, or why none.
func (s *sweep) amount(n need, tier v1.MoveTier, c candidate) (int32, string) {
	switch left := s.cooling[pair{c.donor.ID, n.shard.ID}]; {
	case c.donor.ID == n.shard.ID:
		return 0, "it is the shard that is short"
	case left < 0:
		return 0, "a move between the two shards is in progress"
	case left > 0:
		return 0, fmt.Sprintf("a move between the two shards ended recently; the next one may start in %d s", left)
	case s.busy[slot{c.donor.ID, c.bucket.Kind.short()}]:
		return 0, "a move of such machines from it is in progress"
	}
	least := 1.0
	if tier != v1.MoveTier_MOVE_TIER_DRAIN {
		least = donationMin
	}
	budget := int32(max(least, math.Floor(float64(c.donor.Machines)*s.in.Policy.GetDonorCap()))) - s.given[c.donor.ID]
	if budget <= 0 {
		return 0, "this sweep has already taken the most machines that it may take from it"
	}
	want := machinesFor(n.shortfall.Deficit, c.bucket.Allocatable)
	if want == 0 {
		return 0, "its machines lack a resource that is short"
	}
	give := min(want, int64(c.surplus), int64(budget), s.in.Room)
	if tier == v1.MoveTier_MOVE_TIER_QUOTA && s.in.Slice != nil {
		if units, limited := s.in.Slice(n.shard.Provider, c.bucket.Kind.Region, c.donor.ID); limited && int64(units) < give {
			if give = int64(units); give <= 0 {
				return 0, "it has no quota units left to transfer"
			}
		}
	}
	return int32(give), ""
}

// candidates are the buckets of a provider that could serve a need, best first. The list is made once for all needs
// that ask for the same.
func (s *sweep) candidates(n need, tier v1.MoveTier) []candidate {
	key := lookup{n.provider, n.shortfall.Requirements, n.shortfall.MinUnit, tier}
	if list, ok := s.memo[key]; ok {
		return list
	}
	var list []candidate
	for _, pool := range s.pools.serving(key.req, key.unit) {
		for _, e := range s.pools.at[pool][n.provider] {
			if !e.donor.Fresh || !e.donor.Moves || e.donor.EpochChanged || e.donor.Draining && tier == v1.MoveTier_MOVE_TIER_DRAIN {
				continue
			}
			surplus := s.surplus(e.donor, e.bucket, tier)
			if surplus > 0 && (e.donor.Draining || !s.pools.hungry(e.donor, pool)) {
				list = append(list, candidate{e.donor, e.bucket, surplus})
			}
		}
	}
	slices.SortFunc(list, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.bucket.Price, y.bucket.Price), cmp.Compare(y.surplus, x.surplus), cmp.Compare(x.donor.ID, y.donor.ID),
			cmp.Compare(x.bucket.Kind.InstanceType, y.bucket.Kind.InstanceType), cmp.Compare(x.bucket.Kind.Zone, y.bucket.Kind.Zone),
			cmp.Compare(x.bucket.Kind.CapacityType, y.bucket.Kind.CapacityType))
	})
	s.memo[key] = list
	return list
}

// surplus is what a donor may give from a bucket (COORD-12.7).
func (s *sweep) surplus(donor *Shard, b *Bucket, tier v1.MoveTier) int32 {
	var have int32
	switch tier {
	case v1.MoveTier_MOVE_TIER_IDLE:
		have = b.Idle - s.heldBy(donor, b)
		if !donor.Draining {
			have -= int32(float64(b.Idle) * s.in.Policy.GetDonorMargin()) // rounded down: three of three may go
		}
	case v1.MoveTier_MOVE_TIER_QUOTA:
		have = b.Speculative - s.heldBy(donor, b)
	case v1.MoveTier_MOVE_TIER_DRAIN:
		have = b.Configured
	}
	return have
}

// heldBy counts the machines of a bucket that moved to the donor too recently to move again.
func (s *sweep) heldBy(donor *Shard, b *Bucket) int32 {
	if len(s.held) == 0 {
		return 0
	}
	return s.held[slot{donor.ID, b.Kind.short()}]
}

// propose records a move and what it takes from the rest of the sweep.
func (s *sweep) propose(n need, tier v1.MoveTier, c candidate, want int32, verdicts []*v1.DonorVerdict) {
	left := reduce(n.shortfall.Deficit, c.bucket.Allocatable, int64(want))
	cover := "this covers all of it"
	if len(left) > 0 {
		cover = "this covers part of it"
	}
	verdicts = append(verdicts, &v1.DonorVerdict{ShardId: c.donor.ID, Taken: true,
		Reason: fmt.Sprintf("%d of %d machines at %g dollars per hour", want, c.surplus, c.bucket.Price)})
	s.out = append(s.out, Proposal{Tier: tier, From: c.donor.ID, To: n.shard.ID, Provider: n.shard.Provider, Bucket: *c.bucket, Shortfall: n.shortfall,
		Wanted: want, Donors: verdicts, Reason: fmt.Sprintf("shard %s has been short for %d s at priority %d; %s of type %s in zone %s from shard %s: %s",
			n.shard.ID, n.shortfall.AgeSeconds, n.shortfall.Priority, machines(want), c.bucket.Kind.InstanceType, c.bucket.Kind.Zone, c.donor.ID, cover)})
	s.given[c.donor.ID] += want
	s.in.Room -= int64(want)
	s.busy[slot{c.donor.ID, c.bucket.Kind.short()}], s.waiting[pair{n.shard.ID, n.shortfall.Fingerprint}] = true, true
	s.cooling[pair{c.donor.ID, n.shard.ID}], s.cooling[pair{n.shard.ID, c.donor.ID}] = -1, -1
}

func machines(n int32) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
