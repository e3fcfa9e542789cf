package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// plan is what every step of a plan reads, and the result that the steps write.
type plan struct {
	w      *engine.World
	policy *engine.Policy
	now    int64
	res    *engine.Result
	cat    *cover.Indexes
	off    fastPaths

	plans       uint64 // number of this plan
	lastClasses uint64 // version of the classes in the plan before
}

func (p *plan) text(s symbol.ID) string { return p.w.Space.Strings.Text(s) }

// planning is the steps of a plan and what they remember from plan to plan. Each step is a type of its own with its own fields. A type may
// use those above it in this list and none below it:
//
//   - plan: the input and the result.
//   - workers, folding, questions, free: goroutines, answers of section 8, numbers of questions, free pools.
//   - clusters: the state of each cluster, and which of them changed. A clusterState knows nothing of other clusters.
//   - pending, unmet, queue: Needs that are short after credit, those short after allocation, and the order of allocations.
//   - tops, postponing, actions, acquirer, spread: domains, Needs that look at too many of them, actions, and taking free machines by the cover rule, with a hard spread from several domains.
//   - gangs, allocator, runs, exchange: one allocation of a gang, of any Need, of many equal Needs at once, and the exchange afterwards.
//   - preemption: section 15, with its victims and excess.
//   - settling, verdicts, reasons, publisher: actions, verdicts, reasons of shortfalls, and the published result.
//
// Credit of one cluster works on values of its own: normalising, members, crediting and sharing.
type planning struct {
	plan
	cover cover.Search

	workers    workers
	folding    folding
	questions  questions
	free       cover.FreePool
	clusters   clusters
	pending    pendingList
	unmet      unmetNeeds
	queue      allocationQueue
	tops       topologies
	postponing postponing
	actions    actionList
	acquirer   acquirer
	spread     spreading
	gangs      gangAllocator
	allocator  allocator
	runs       runs
	exchange   exchange
	preemption preemption
	settling   settling
	verdicts   verdicts
	reasons    reasons
	publisher  publisher

	orders uint64 // version of Row.Order
	ahead  ahead  // the credit that was begun before the next plan
	looked int    // rows that are looked up before it begins
}

// newPlanning hands each step what it uses.
func newPlanning() *planning {
	p := &planning{}
	x := &p.workers.own
	p.workers.plan, p.folding.plan, p.questions.plan = &p.plan, &p.plan, &p.plan
	p.clusters = clusters{plan: &p.plan, folding: &p.folding, x: x}
	p.pending = pendingList{plan: &p.plan, clusters: &p.clusters, questions: &p.questions, free: &p.free}
	p.unmet = unmetNeeds{plan: &p.plan, clusters: &p.clusters, pending: &p.pending}
	p.queue = allocationQueue{clusters: &p.clusters, unmet: &p.unmet}
	p.tops = topologies{plan: &p.plan, free: &p.free}
	p.postponing = postponing{plan: &p.plan, clusters: &p.clusters, pending: &p.pending, tops: &p.tops}
	p.actions = actionList{plan: &p.plan, clusters: &p.clusters}
	p.acquirer = acquirer{plan: &p.plan, free: &p.free, clusters: &p.clusters, tops: &p.tops, actions: &p.actions, cover: &p.cover}
	p.spread = spreading{plan: &p.plan, free: &p.free, tops: &p.tops, acquirer: &p.acquirer, cover: &p.cover}
	p.gangs = gangAllocator{plan: &p.plan, free: &p.free, clusters: &p.clusters, unmet: &p.unmet, tops: &p.tops, cover: &p.cover, x: x}
	p.runs = runs{plan: &p.plan, workers: &p.workers, free: &p.free, clusters: &p.clusters, pending: &p.pending, queue: &p.queue, actions: &p.actions,
		cover: &p.cover}
	p.allocator = allocator{plan: &p.plan, clusters: &p.clusters, pending: &p.pending, unmet: &p.unmet, queue: &p.queue, spread: &p.spread,
		acquirer: &p.acquirer, gangs: &p.gangs, runs: &p.runs, cover: &p.cover, x: x}
	p.exchange = exchange{plan: &p.plan, free: &p.free, clusters: &p.clusters, pending: &p.pending, tops: &p.tops, actions: &p.actions,
		acquirer: &p.acquirer, cover: &p.cover}
	p.preemption = preemption{plan: &p.plan, clusters: &p.clusters, pending: &p.pending, unmet: &p.unmet, queue: &p.queue, actions: &p.actions,
		spread: &p.spread, allocator: &p.allocator}
	for _, t := range []*targets{&p.preemption.victims, &p.preemption.excess} {
		*t = targets{plan: &p.plan, workers: &p.workers, clusters: &p.clusters, tops: &p.tops}
	}
	p.preemption.request = request{plan: &p.plan, spread: &p.spread}
	p.settling = settling{plan: &p.plan, free: &p.free, clusters: &p.clusters, pending: &p.pending, actions: &p.actions, preemption: &p.preemption}
	p.verdicts = verdicts{plan: &p.plan}
	p.reasons = reasons{plan: &p.plan, free: &p.free, tops: &p.tops, spread: &p.spread, cover: &p.cover}
	p.publisher = publisher{plan: &p.plan, workers: &p.workers, clusters: &p.clusters, pending: &p.pending, unmet: &p.unmet, queue: &p.queue,
		exchange: &p.exchange, verdicts: &p.verdicts, reasons: &p.reasons, x: x}
	return p
}
