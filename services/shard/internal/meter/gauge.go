package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// gauges are set from what the core publishes.
type gauges struct {
	inventory, spend, clusterSpend      *prometheus.GaugeVec
	age, machines, held, breaker, limit *prometheus.GaugeVec
	stuck, failed, withheld             *prometheus.GaugeVec
	foreign, unjoined                   prometheus.Gauge
	needs, oldest, shortfalls           prometheus.Gauge
	unmet, aged, demand                 *prometheus.GaugeVec
	queue, inflight                     *prometheus.GaugeVec
	paused, dryRun, fenced, epoch       prometheus.Gauge
	tokens, rollupAge                   *prometheus.GaugeVec
	silent, gates, sessions, pools      prometheus.Gauge
	openNeeds, dirty, shares            prometheus.Gauge
	parked, joinOverdue, joinGuarded    prometheus.Gauge
	promises, sharing                   *prometheus.GaugeVec
	unplaced, perChange                 prometheus.Gauge
	exchangeSaved, reclaimMatches       prometheus.Gauge
	memo                                *prometheus.CounterVec
	allocations, displaced, exchanges   prometheus.Counter
	term, lastReport, disputed          prometheus.Gauge
}

func (g *gauges) register(m *telemetry.Metrics) {
	g.inventory = m.GaugeVec("inventory_machines", "Machines owned by this shard.", "state", "capacity_type", "interruption_penalty_bucket")
	g.spend = m.GaugeVec("spend_dollars_per_hour", "Sum of the provider prices of machines that exist.", "capacity_type", "state")
	g.clusterSpend = m.GaugeVec("cluster_spend_dollars_per_hour", "Sum of the provider prices of machines that serve a cluster or were created for it; an empty cluster label means machines that serve none.", "cluster")
	g.age = m.GaugeVec("inventory_age_seconds", "Age of the last successful List.", "provider")
	g.machines = m.GaugeVec("list_machines", "Machines known of a provider.", "provider")
	g.held = m.GaugeVec("removals_held", "Machine removals held by the guard.", "provider")
	g.breaker = m.GaugeVec("provider_breaker", "State of the provider's circuit breaker: 0 closed, 1 half-open, 2 open.", "provider")
	g.limit = m.GaugeVec("provider_concurrency", "Concurrent commands that are allowed now.", "provider")
	g.stuck = m.GaugeVec("machines_stuck", "Machines that have been in a transition for too long.", "state")
	g.failed = m.GaugeVec("machines_failed", "Failed machines.", "bound")
	g.withheld = m.GaugeVec("machines_withheld", "Machines that are counted but not offered to needs.", "reason")
	g.foreign = m.Gauge("machines_foreign", "Machines that another shard owns.")
	g.unjoined = m.Gauge("machines_unjoined", "Machines that have been Configured for 5 minutes without a ready node, in clusters that report.")
	g.needs = m.Gauge("needs", "Needs in force.")
	g.unmet = m.GaugeVec("needs_unmet", "Unmet needs by reason, including those whose actions are held back.", "reason")
	g.oldest = m.Gauge("unmet_oldest_seconds", "Age of the oldest unmet need.")
	g.demand = m.GaugeVec("demand_machines", "Machines that the plan counts for needs.", "interruption_penalty_bucket")
	g.shortfalls = m.Gauge("shortfalls", "Profiles that are short.")
	g.aged = m.GaugeVec("shortfalls_aged", "Profiles that are short, by age in cycles of --cycle-interval.", "bucket")
	g.queue = m.GaugeVec("action_queue_depth", "Decisions waiting to start.", "kind")
	g.inflight = m.GaugeVec("execute_inflight", "Commands in flight.", "kind")
	g.paused = m.Gauge("actuation_paused", "1 while any pause exists.")
	g.dryRun = m.Gauge("dry_run", "1 in dry run.")
	g.tokens = m.GaugeVec("reclaim_tokens", "Reclaim tokens left; an empty cluster label means the whole shard.", "cluster")
	g.rollupAge = m.GaugeVec("rollup_age_seconds", "Age of the last accepted or unchanged roll-up.", "cluster")
	g.silent = m.Gauge("clusters_silent", "Clusters with machines that have sent no roll-up for a long time.")
	g.gates = m.Gauge("reclaim_gates_closed", "Clusters with machines whose reclaim gate is closed.")
	g.sessions = m.Gauge("active_sessions", "Sessions installed.")
	g.pools = m.Gauge("pools_stocked_out", "Pools out of stock.")
	g.fenced = m.Gauge("fenced", "1 when a newer process has this identity.")
	g.epoch = m.Gauge("epoch", "Epoch of this process.")
	g.disputed = m.Gauge("epoch_disputed", "1 when the coordinator saw a higher epoch of this shard.")
	g.term = m.Gauge("coordinator_term", "Highest fencing term seen.")
	g.lastReport = m.Gauge("coordinator_last_report_seconds", "Time since the last answered report; -1: never.")

	g.openNeeds = m.Gauge("engine_open_needs", "Open needs of the last plan.")
	g.dirty = m.Gauge("engine_dirty_clusters", "Clusters recomputed by the last plan.")
	g.memo = m.CounterVec("engine_memo_total", "Uses of the engine's caches.", "cache", "result")
	g.shares = m.Gauge("engine_shares", "Needs that are served by the remaining capacity of other needs' machines.")
	g.sharing = m.GaugeVec("engine_sharing_level", "Clusters by sharing level.", "level")
	g.unplaced = m.Gauge("engine_unplaced_needs", "Needs that are met, although the scheduler cannot place all their Pods.")
	g.perChange = m.Gauge("engine_actions_per_net_change", "Machine moves of the last hour over the net change of demand in machines; near 1 is good.")
	g.joinOverdue = m.Gauge("engine_join_overdue", "Configured machines that did not join in time.")
	g.joinGuarded = m.Gauge("engine_join_guarded", "Machines whose Node did not join and that still count for their needs, because of the join guard.")
	g.parked = m.Gauge("engine_parked_needs", "Gangs that wait for a domain that can hold them.")
	g.promises = m.GaugeVec("engine_promises", "Machines that are promised to needs.", "cause")
	g.exchangeSaved = m.Gauge("engine_exchange_saved_dollars_per_hour", "Dollars per hour that exchanging purchases saved in the last plan.")
	g.exchanges = m.Counter("engine_exchange_tries_total", "Purchases that the engine tried to exchange.")
	g.reclaimMatches = m.Gauge("engine_reclaim_matches_unmet", "Machines reclaimed while fitting a short need of their cluster; must be 0.")
	g.allocations = m.Counter("engine_allocations_total", "Allocations of needs: attempts to cover one that was short.")
	g.displaced = m.Counter("engine_displacements_total", "Needs that became short when machines were attributed again.")
}

var kinds = [...]core.Kind{engine.Bootstrap, engine.Provision, engine.Preempt, engine.Reclaim, engine.Delete}

// Publish sets the gauges.
func (t *Meter) Publish(p *core.Publish) {
	g, s := &t.gauges, &p.Status
	g.foreign.Set(float64(s.Foreign))
	g.needs.Set(float64(s.Needs))
	for _, r := range [...]struct {
		reason engine.UnmetReason
		label  string
	}{{engine.PriorityStarved, "priority_starved"}, {engine.NoMatchingSupply, "no_matching_supply"},
		{engine.TopologyUnsatisfiable, "topology_unsatisfiable"}, {engine.PreemptionExhausted, "preemption_exhausted"}} {
		g.unmet.WithLabelValues(r.label).Set(float64(s.Unmet[r.reason]))
	}
	g.unmet.WithLabelValues("held_back").Set(float64(s.HeldBack))
	g.oldest.Set(time.Duration(s.OldestAge).Seconds())
	g.shortfalls.Set(float64(s.Aged[0] + s.Aged[1] + s.Aged[2] + s.Aged[3]))
	for i, bucket := range [...]string{"1-9", "10-59", "60-299", "300+"} {
		g.aged.WithLabelValues(bucket).Set(float64(s.Aged[i]))
	}
	for _, k := range kinds {
		g.queue.WithLabelValues(k.String()).Set(float64(s.Waiting[k]))
		g.inflight.WithLabelValues(k.String()).Set(float64(s.InFlight[k]))
	}
	g.paused.Set(one(s.Paused))
	g.dryRun.Set(one(s.DryRun))
	g.fenced.Set(one(s.Superseded != ""))
	g.epoch.Set(float64(s.Epoch))
	g.silent.Set(float64(s.Silent))
	g.gates.Set(float64(s.GatesShut))
	g.sessions.Set(float64(s.Sessions))
	g.pools.Set(float64(len(s.Pools)))
	g.term.Set(float64(s.Coord.Lineage.Term))
	g.disputed.Set(one(s.Coord.Disputed))
	g.parked.Set(float64(s.Parked))
	for _, pr := range s.Providers {
		age := -1.0
		if pr.ListedAt > 0 {
			age = time.Duration(p.At - pr.ListedAt).Seconds()
		}
		g.age.WithLabelValues(pr.Name).Set(age)
		g.machines.WithLabelValues(pr.Name).Set(float64(pr.Machines))
		g.held.WithLabelValues(pr.Name).Set(float64(pr.Held))
		g.breaker.WithLabelValues(pr.Name).Set(float64(pr.Breaker))
		g.limit.WithLabelValues(pr.Name).Set(float64(pr.Limit))
	}
	t.engine(&s.Counters)
	t.demand(s)
	t.churn.publish(p)
	g.perChange.Set(t.churn.ratio())
	t.perCluster(p)
}

func (t *Meter) engine(c *engine.Counters) {
	g := &t.gauges
	g.openNeeds.Set(float64(c.OpenNeeds))
	g.dirty.Set(float64(c.DirtyClusters))
	g.shares.Set(float64(c.Shares))
	g.joinOverdue.Set(float64(c.JoinOverdue))
	g.joinGuarded.Set(float64(c.JoinGuarded))
	g.promises.WithLabelValues("create").Set(float64(c.PromisesCreate))
	g.promises.WithLabelValues("preempt").Set(float64(c.PromisesPreempt))
	g.exchangeSaved.Set(float64(c.ExchangeSaved) / 1e6)
	g.reclaimMatches.Set(float64(c.ReclaimMatchesUnmet))
}

// Planned counts what one plan did. Called once per cycle.
func (t *Meter) Planned(c *engine.Counters) {
	g := &t.gauges
	g.allocations.Add(float64(c.Allocations))
	g.displaced.Add(float64(c.Displaced))
	g.exchanges.Add(float64(c.ExchangeTries))
	g.memo.WithLabelValues("credit", "hit").Add(float64(c.CreditHit))
	g.memo.WithLabelValues("credit", "miss").Add(float64(c.CreditMiss))
}

// perCluster sets the series of clusters that have a session or machines, and deletes those of clusters that left.
func (t *Meter) perCluster(p *core.Publish) {
	g := &t.gauges
	g.tokens.WithLabelValues("").Set(float64(p.Status.Tokens) / 1000)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	for _, c := range p.Clusters {
		bound := c.States[inventory.Configuring] + c.States[inventory.Configured] + c.States[inventory.Draining]
		if !c.Connected && bound == 0 {
			continue
		}
		s := t.clusters[c.Name]
		if s == nil { // thousands of series, several times a second: each is looked up by its labels once
			s = &clusterSeries{tokens: g.tokens.WithLabelValues(c.Name), age: g.rollupAge.WithLabelValues(c.Name)}
			t.clusters[c.Name] = s
		}
		s.round = t.round
		s.tokens.Set(float64(c.Tokens) / 1000)
		age := -1.0
		if c.Fresh > 0 {
			age = time.Duration(p.At - c.Fresh).Seconds()
		}
		s.age.Set(age)
	}
	for name, s := range t.clusters {
		if s.round != t.round {
			delete(t.clusters, name)
			g.tokens.DeleteLabelValues(name)
			g.rollupAge.DeleteLabelValues(name)
			t.held.DeleteLabelValues(name)
			t.counters[core.MetricRollupsRejected].DeletePartialMatch(prometheus.Labels{"cluster": name})
		}
	}
}

// clusterSeries are the series of a cluster that each publication sets.
type clusterSeries struct {
	tokens, age prometheus.Gauge
	round       uint64 // of the publication that set them last
}

// LastReport sets when a coordinator last answered; negative: never.
func (t *Meter) LastReport(age time.Duration) { t.gauges.lastReport.Set(age.Seconds()) }

// Outboxes sets how many frames wait, by class.
func (t *Meter) Outboxes(depth map[string]int) {
	for class, n := range depth {
		t.outDepth.WithLabelValues(class).Set(float64(n))
	}
}

// Queues sets how many events waited in each kind of source.
func (t *Meter) Queues(peaks map[string]int) {
	for source, n := range peaks {
		t.queues.WithLabelValues(source).Set(float64(n))
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
