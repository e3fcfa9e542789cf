// Package meter turns what the core says into the metrics of a shard, under exactly the names of SHARD-29.3.
//
// Counters and histograms come from core.Sample, gauges from core.Publish, and a few from the shell's own packages. It
// owns names, labels and the removal of series whose subject is gone; it never decides what is worth counting.
//
// A Meter is safe for concurrent use. Start at New.
package meter

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
)

// demandBuckets is the number of interruption penalties.
const demandBuckets = int(demand.Pinned) + 1

// Meter is the metrics of one shard.
type Meter struct {
	cycle      prometheus.Histogram
	phases     *prometheus.HistogramVec
	steps      *prometheus.HistogramVec
	queues     *prometheus.GaugeVec
	restarts   *prometheus.CounterVec
	logErrors  prometheus.Counter
	oversize   prometheus.Counter
	identity   prometheus.Counter
	acks       prometheus.Counter
	compared   prometheus.Counter
	stale      prometheus.Counter
	slow       prometheus.Counter
	stray      *prometheus.CounterVec
	coalesced  prometheus.Counter
	outDropped *prometheus.CounterVec
	outDepth   *prometheus.GaugeVec

	counters map[core.Metric]*prometheus.CounterVec
	seconds  map[core.Metric]*prometheus.HistogramVec
	bytes    *prometheus.HistogramVec
	held     *prometheus.GaugeVec
	gauges   gauges

	mu       sync.Mutex
	clusters map[string]*clusterSeries // of clusters that have any
	round    uint64                    // publications so far
	kinds    map[core.CensusKey]bool   // machines that have series
	spent    map[core.CensusKey]bool
	churn    churn
	asked    [demandBuckets]bool // buckets that have series
	paying   map[string]int64    // clusters that have a series of their spend
	merging  time.Duration       // of the List that is being merged
}

// New registers everything.
func New(m *telemetry.Metrics) (*Meter, error) {
	t := &Meter{
		cycle:      m.Histogram("cycle_duration_seconds", "How long one cycle takes, from snapshot to dispatch."),
		phases:     m.HistogramVec("cycle_phase_duration_seconds", "How long one phase takes.", "phase"),
		steps:      m.HistogramVec("step_duration_seconds", "How long the core works on one event.", "event"),
		queues:     m.GaugeVec("event_queue_depth", "Events waiting for the core.", "source"),
		restarts:   m.CounterVec("component_restarts_total", "Restarts of parts of the process.", "component"),
		logErrors:  m.Counter("decision_log_errors_total", "Records that could not be written to the decision log."),
		oversize:   m.Counter("frames_oversize_total", "Frames above the size limit; each ended its stream."),
		identity:   m.Counter("session_identity_rejected_total", "Sessions refused because the certificate carries another identity."),
		compared:   m.Counter("plan_comparisons_total", "Plans that were compared with a full one."),
		acks:       m.Counter("coordinator_acks_dropped_total", "Answers to instructions that were dropped while no coordinator accepted reports."),
		stale:      m.Counter("coordinator_answers_stale_total", "Answers to reports that were dropped because a later leader is known."),
		slow:       m.Counter("outbox_slow_closed_total", "Sessions that were ended because the operator read too slowly."),
		stray:      m.CounterVec("frames_skipped_total", "Frames that were skipped, by kind.", "kind"),
		coalesced:  m.Counter("outbox_coalesced_total", "Frames replaced by a newer one of their key."),
		outDropped: m.CounterVec("outbox_dropped_total", "Frames dropped at the byte limit.", "class"),
		outDepth:   m.GaugeVec("outbox_depth", "Frames waiting in outboxes.", "class"),
		held:       m.GaugeVec("rollup_quarantined", "Confirmations of the held roll-up; 0 means that none is held.", "cluster"),
		bytes:      m.HistogramOf("rollup_bytes", "Encoded size of roll-ups.", telemetry.BytesBuckets()),
		counters:   map[core.Metric]*prometheus.CounterVec{},
		seconds:    map[core.Metric]*prometheus.HistogramVec{},
		clusters:   map[string]*clusterSeries{},
		kinds:      map[core.CensusKey]bool{},
		spent:      map[core.CensusKey]bool{},
	}
	for _, r := range counterRows {
		t.counters[r.metric] = m.CounterVec(r.name, r.help, r.labels...)
	}
	for _, r := range secondRows {
		t.seconds[r.metric] = m.HistogramVec(r.name, r.help, r.labels...)
	}
	t.gauges.register(m)
	if err := m.Err(); err != nil {
		return nil, err
	}
	t.zero()
	return t, nil
}

// zero shows every series without labels from the start: rate() does not see a step from "absent" to 1, and an alert on
// the first plan mismatch must.
func (t *Meter) zero() {
	for _, r := range counterRows {
		if len(r.labels) == 0 {
			t.counters[r.metric].WithLabelValues()
		}
	}
	for _, r := range secondRows {
		if len(r.labels) == 0 {
			t.seconds[r.metric].WithLabelValues()
		}
	}
}

type row struct {
	metric core.Metric
	name   string
	help   string
	labels []string
}

var counterRows = []row{
	{core.MetricCycleTriggers, "cycle_triggers_total", "Cycles by what triggered them.", []string{"cause"}},
	{core.MetricPlanMismatch, "plan_mismatch_total", "Plans in which the incremental path differed from the full one.", nil},
	{core.MetricActions, "actions_total", "Operations started.", []string{"kind"}},
	{core.MetricOutcomes, "action_execute_outcomes_total", "Operations ended, by outcome.", []string{"kind", "outcome"}},
	{core.MetricDropped, "actions_dropped_total", "Decisions replaced by a newer plan before they started.", nil},
	{core.MetricDeduped, "actions_deduped_total", "Decisions whose start state no longer held.", nil},
	{core.MetricDeferred, "actions_deferred_total", "Decisions deferred by --max-actions-per-cycle.", nil},
	{core.MetricSuppressed, "actions_suppressed_total", "Decisions held by a pause.", []string{"kind"}},
	{core.MetricDryRun, "actions_dryrun_total", "Decisions held by dry run.", []string{"kind"}},
	{core.MetricReclaimsCapped, "reclaims_capped_total", "Reclaims that had to wait for the budget.", nil},
	{core.MetricReclaimsUnresolved, "reclaims_unresolved_total", "Reclaims of which not all nodes could be cordoned.", nil},
	{core.MetricEvictionsSkipped, "evictions_skipped_total", "Drains without eviction because the cluster had no session.", nil},
	{core.MetricIdleReleases, "idle_releases_total", "Finished Deletes.", nil},
	{core.MetricRollups, "rollups_total", "Roll-ups processed.", []string{"disposition"}},
	{core.MetricRollupsRejected, "rollups_rejected_total", "Roll-ups that were rejected.", []string{"cluster", "reason"}},
	{core.MetricRollupWarnings, "rollup_warnings_total", "Soft violations in roll-ups.", []string{"rule"}},
	{core.MetricSessions, "session_lifecycle_total", "Sessions installed, replaced and removed.", []string{"event"}},
	{core.MetricStrayAnswers, "answers_stray_total", "Answers to requests that are no longer open.", []string{"kind"}},
	{core.MetricMachinesRejected, "machines_rejected_total", "Machine records that were rejected.", []string{"reason"}},
	{core.MetricUnexpectedEdges, "unexpected_edges_total", "Transitions that this shard did not command.", []string{"from", "to"}},
	{core.MetricBindingConflicts, "binding_conflicts_total", "Machines that the provider says belong to another cluster.", nil},
	{core.MetricReconcileErrors, "reconcile_errors_total", "Lists that failed.", []string{"provider"}},
	{core.MetricFenceReordered, "fence_reordered_total", "Fence rejections that a provider's confusion of tokens explains.", nil},
	{core.MetricOwnershipRelabels, "ownership_relabels_total", "Machines given up because they changed owner while being created.", nil},
	{core.MetricOwnershipViolations, "ownership_violations_total", "Machines on which two shards acted.", nil},
	{core.MetricInstructions, "instructions_total", "Coordinator instructions answered.", []string{"outcome"}},
	{core.MetricInterruptions, "interruptions_total", "Hosts that their provider interrupted or announced to interrupt.", []string{"provider", "capacity_type"}},
}

var secondRows = []row{
	{core.MetricListDuration, "list_duration_seconds", "How long a List takes.", []string{"provider", "mode"}},
	{core.MetricCycleLag, "cycle_lag_seconds", "Time from a roll-up's arrival to the end of the cycle that used it.", nil},
	{core.MetricDispatchWait, "dispatch_wait_seconds", "Time from the first plan with a decision to the start of its action.", []string{"kind"}},
	{core.MetricRequestBootstrap, "request_bootstrap_seconds", "Time from a bootstrap request to its answer.", nil},
	{core.MetricProviderRPC, "provider_rpc_seconds", "Duration of provider calls.", []string{"provider", "rpc", "code"}},
	{core.MetricCreatePhase, "create_phase_seconds", "Time from Create until the host exists.", nil},
	{core.MetricConfigurePhase, "configure_phase_seconds", "Time from Configure until the machine is Configured.", nil},
	{core.MetricDrainPhase, "drain_phase_seconds", "Time from Drain until the machine is Idle.", nil},
	{core.MetricDeletePhase, "delete_phase_seconds", "Time from Delete until the machine is speculative again.", nil},
	{core.MetricProvisioningLatency, "provisioning_latency_seconds", "Time from unmet demand to a Configured machine.", []string{"path"}},
	{core.MetricDemandToReady, "demand_to_ready_seconds", "Time from unmet demand to a Ready node.", []string{"path"}},
}

// Sample takes one observation.
func (t *Meter) Sample(s core.Sample) {
	switch s.Metric {
	case core.MetricActions:
		t.churn.action(s)
	case core.MetricRollupBytes:
		t.bytes.WithLabelValues().Observe(float64(s.Value))
		return
	case core.MetricRollupQuarantined:
		t.held.WithLabelValues(s.Label1).Set(float64(s.Value))
		return
	}
	if h := t.seconds[s.Metric]; h != nil {
		h.WithLabelValues(labels(s)...).Observe(time.Duration(s.Value).Seconds())
		return
	}
	if c := t.counters[s.Metric]; c != nil {
		c.WithLabelValues(labels(s)...).Add(float64(s.Value))
	}
}

func labels(s core.Sample) []string {
	switch s.Metric {
	case core.MetricInterruptions:
		return []string{s.Label1, public(s.Label2)}
	case core.MetricProviderRPC:
		provider, rpc, _ := strings.Cut(s.Label1, "\x00")
		return []string{provider, rpc, s.Label2}
	case core.MetricOutcomes, core.MetricRollupsRejected, core.MetricUnexpectedEdges, core.MetricListDuration:
		return []string{s.Label1, s.Label2}
	}
	if s.Label1 == "" {
		return nil
	}
	return []string{s.Label1}
}

// Step takes the duration of one step of the core.
func (t *Meter) Step(e core.Event, d time.Duration) {
	t.steps.WithLabelValues(core.KindOf(e).String()).Observe(d.Seconds())
	switch e.(type) {
	case core.ListPage:
		t.merging += d
	case core.ListDone: // one List per provider at a time; of several providers the sum is what the loop felt
		t.Phase("reconcile", t.merging+d)
		t.merging = 0
	}
}

// Cycle takes the duration of a step that ran a cycle.
func (t *Meter) Cycle(d time.Duration) { t.cycle.Observe(d.Seconds()) }

// Phase takes the duration of one phase.
func (t *Meter) Phase(name string, d time.Duration) {
	t.phases.WithLabelValues(name).Observe(d.Seconds())
}

// Restarted counts a restart of a component.
func (t *Meter) Restarted(component string) { t.restarts.WithLabelValues(component).Inc() }

// LogError counts a record that was not written.
func (t *Meter) LogError() { t.logErrors.Inc() }

// IdentityRejected implements session.Observer.
func (t *Meter) IdentityRejected() { t.identity.Inc() }

// PlanCompared counts a plan that was compared with a full one.
func (t *Meter) PlanCompared() { t.compared.Inc() }

// AcksDropped counts answers to instructions that the coordinator client dropped.
func (t *Meter) AcksDropped(n int) { t.acks.Add(float64(n)) }

// AnswerStale counts an answer of a leader that is none any more.
func (t *Meter) AnswerStale() { t.stale.Inc() }

// FrameOversize implements session.Observer.
func (t *Meter) FrameOversize() { t.oversize.Inc() }

// SlowClosed implements session.Observer.
func (t *Meter) SlowClosed() { t.slow.Inc() }

// StrayFrame implements session.Observer.
func (t *Meter) StrayFrame(kind string) { t.stray.WithLabelValues(kind).Inc() }

// OutboxEnded implements session.Observer.
func (t *Meter) OutboxEnded(s session.OutboxStats) {
	t.coalesced.Add(float64(s.Coalesced))
	for c, n := range s.Dropped {
		if n > 0 {
			t.outDropped.WithLabelValues(session.Class(c).String()).Add(float64(n))
		}
	}
}
