package provider

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metrics is the one vocabulary of all providers (PROV-21.1). Machine ids, cluster ids and error text are never labels.
type metrics struct {
	rpcs, transitions, fenced, denied, repeats, calls, commits, listRows, cursorResets, reconciles, rejected, janitor,
	priceRefresh, interruptions, tlsReload *prometheus.CounterVec
	rpcDuration, duration, callDuration, callWait *prometheus.HistogramVec
	inFlight, breaker, prices                     *prometheus.GaugeVec
	conflicts, drift, lost, panics                prometheus.Counter
	commitDuration, commitBatch, reconcileTook    prometheus.Histogram
	guard, reconcileAt                            prometheus.Gauge
	bytes                                         atomic.Pointer[func() int64]
}

const metricPrefix = "bigfleet_provider_"

// newMetrics registers everything with the constant label provider. p is asked for the gauges at each scrape.
func newMetrics(name string, p *Provider) (*metrics, error) {
	m := &metrics{}
	var all []prometheus.Collector
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: buckets}, labels)
		all = append(all, h)
		return h
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help}, labels)
		all = append(all, g)
		return g
	}
	short := prometheus.ExponentialBuckets(0.0001, 2.5, 13) // 0.1 ms to 6 s
	long := prometheus.ExponentialBuckets(0.05, 2.2, 14)    // 50 ms to 23 min

	m.rpcs = counter("rpc_requests_total", "Calls by method and code.", "method", "code")
	m.rpcDuration = histogram("rpc_duration_seconds", "Time to answer a call.", short, "method")
	m.transitions = counter("transitions_total", "Ended transitions.", "kind", "outcome")
	m.duration = histogram("transition_duration_seconds", "Time from accepting a transition to its end.", long, "kind")
	m.inFlight = gauge("transitions_in_flight", "Transitions in progress.", "kind")
	m.fenced = counter("fenced_total", "Calls that were rejected because of a stale token.", "method")
	m.denied = counter("denied_total", "Calls that were rejected because of the caller's identity.", "reason")
	m.repeats = counter("repeats_total", "Repeated calls, which were answered with the first operation id.", "method")
	m.conflicts = counter("conflicts_total", "Configure calls for a machine that serves another cluster.").WithLabelValues()
	m.calls = counter("substrate_calls_total", "Calls to the substrate.", "op", "outcome")
	m.callDuration = histogram("substrate_call_duration_seconds", "Time of a call to the substrate.", long, "op")
	m.callWait = histogram("substrate_wait_seconds", "Time that a call waits for the concurrency limit and the rate limit.", short, "op")
	m.breaker = gauge("breaker_open", "1 while new Creates are refused because this call keeps failing.", "op")
	m.commits = counter("store_commits_total", "Commits to the store.", "outcome")
	m.commitDuration = histogram("store_commit_duration_seconds", "Time of a commit.", short).WithLabelValues().(prometheus.Histogram)
	m.commitBatch = histogram("store_commit_batch", "Changes in one commit.", prometheus.ExponentialBuckets(1, 2, 11)).WithLabelValues().(prometheus.Histogram)
	m.listRows = counter("list_rows_total", "Machines sent by List.", "scope")
	m.cursorResets = counter("cursor_resets_total", "Lists that returned all machines although a cursor was given.", "reason")
	m.reconciles = counter("reconcile_total", "Rounds of Describe.", "outcome")
	m.reconcileTook = histogram("reconcile_duration_seconds", "Time of a round of Describe.", long).WithLabelValues().(prometheus.Histogram)
	m.reconcileAt = gauge("reconcile_last_success_timestamp_seconds", "When the newest complete round of Describe ended.").WithLabelValues()
	m.rejected = counter("records_rejected_total", "Observed records that violate the contract.", "reason")
	m.drift = counter("drift_total", "Marks on hosts that differ from the store.").WithLabelValues()
	m.lost = counter("hosts_lost_total", "Hosts proven gone.").WithLabelValues()
	m.guard = gauge("loss_guard_held", "Missing hosts that do not count as lost yet.").WithLabelValues()
	m.janitor = counter("janitor_total", "Actions of the janitor.", "action", "outcome")
	m.priceRefresh = counter("price_refresh_total", "Price refreshes.", "outcome")
	m.prices = gauge("price_usd_per_hour", "Newest quote.", "instance_type", "zone", "capacity_type")
	m.interruptions = counter("interruptions_total", "Interruption notices.", "instance_type", "zone")
	m.tlsReload = counter("tls_reload_total", "Reloads of the TLS files.", "outcome")
	m.panics = counter("panics_total", "Caught panics.").WithLabelValues()
	gauge("readiness_gate", "1 for the readiness mode that is in force.", "mode").WithLabelValues(p.set.readiness.mode).Set(1)
	gauge("build_info", "Always 1; the label is the running version.", "version").WithLabelValues(p.set.version).Set(1)
	gauge("shard_san_off", "1 while shard SANs are not checked.").WithLabelValues().Set(number(p.set.anyShard))
	all = append(all, &gauges{p: p})
	m.begin()

	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"provider": name}, p.set.registerer)
	var failed []error
	for _, c := range all {
		failed = append(failed, registerer.Register(c))
	}
	return m, errors.Join(failed...)
}

// begin shows the counters that alerts look at from zero on: the first event of a counter that was not there is no increase.
func (m *metrics) begin() {
	for _, k := range lifecycle.Kinds() {
		m.fenced.WithLabelValues(k.String())
		m.repeats.WithLabelValues(k.String())
		m.inFlight.WithLabelValues(k.Label())
		for _, outcome := range []string{"ok", "failed", "timeout", "interrupted", "late"} {
			m.transitions.WithLabelValues(k.Label(), outcome)
		}
	}
	for _, reason := range []string{"no_identity", "shard", "kind", "remote_plaintext"} {
		m.denied.WithLabelValues(reason)
	}
	for _, reason := range []string{"offering", "price", "duplicate", "describe", "metadata_lost"} {
		m.rejected.WithLabelValues(reason)
	}
	for _, c := range []*prometheus.CounterVec{m.commits, m.reconciles, m.tlsReload} {
		c.WithLabelValues("ok")
		c.WithLabelValues("error")
	}
}

func (m *metrics) commit(changes int, took time.Duration, err error) {
	m.commits.WithLabelValues(outcome(err)).Inc()
	m.commitDuration.Observe(took.Seconds())
	m.commitBatch.Observe(float64(changes))
}

func (m *metrics) storeBytes(f func() int64) { m.bytes.Store(&f) }

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// gauges reads the gauges of the moment at each scrape.
type gauges struct{ p *Provider }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, labels, nil)
}

// Describe sends nothing: which gauges there are depends on the moment, and the registry allows that.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

func (g *gauges) Collect(out chan<- prometheus.Metric) {
	p := g.p
	if p.phase.Load() == starting {
		return
	}
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	machines, failed := map[[2]string]int{}, map[[2]string]int{}
	for k, n := range p.inventory.Count() {
		machines[[2]string{label(k.State.String(), "MACHINE_STATE_"), label(k.CapacityType.String(), "CAPACITY_TYPE_")}] += n
		if k.State == lifecycle.Failed {
			failed[[2]string{label(k.Failure.String(), "MACHINE_FAILURE_"), map[bool]string{true: "true", false: "false"}[k.Bound]}] += n
		}
	}
	for k, n := range machines {
		send(desc("machines", "Machines.", "state", "capacity_type"), float64(n), k[0], k[1])
	}
	for k, n := range failed {
		send(desc("failed_machines", "Machines that are Failed.", "failure", "bound"), float64(n), k[0], k[1])
	}
	waiting := p.queue.lengths()
	for _, k := range lifecycle.Kinds() {
		send(desc("transition_queue", "Transitions that wait to start.", "kind"), float64(waiting[k]), k.Label())
	}
	all, unknown := p.inventory.Marks()
	send(desc("marks", "Fence marks.", "machine"), float64(all-unknown), "known")
	send(desc("marks", "Fence marks.", "machine"), float64(unknown), "unknown")
	send(desc("tombstones", "Removed machines that are kept for cursors."), float64(p.inventory.Tombstones()))
	send(desc("orphans", "Hosts that belong to no machine."), float64(p.janitor.orphans()))
	send(desc("paused", "1 while mutations are paused."), number(p.paused.Load()))
	if f := p.metrics.bytes.Load(); f != nil {
		send(desc("store_bytes", "Size of the store."), float64((*f)()))
	}
	if p.tls != nil { // the same metric as every process of BigFleet has (OPS-8.5)
		leaf, ca := p.tls.Expiry()
		expiry := prometheus.NewDesc("bigfleet_certificate_expiry_seconds",
			"Seconds until the certificate of this process (use=leaf) or the CA that signed it (use=ca) expires; negative after that.", []string{"use"}, nil)
		send(expiry, time.Until(leaf).Seconds(), "leaf")
		send(expiry, time.Until(ca).Seconds(), "ca")
	}
	for source, age := range p.offers.priceAges(time.Now()) {
		send(desc("price_age_seconds", "Age of the oldest price in force.", "source"), age.Seconds(), source)
	}
}

func label(enum, prefix string) string { return strings.ToLower(strings.TrimPrefix(enum, prefix)) }

// capacityLabel is the capacity type as a metric label.
func capacityLabel(c CapacityType) string {
	return label(bigfleetv1alpha1.CapacityType(c).String(), "CAPACITY_TYPE_")
}

// typical is the mean duration of a kind so far, in seconds; 0 while nothing ended.
func (m *metrics) typical(k Kind) float64 {
	var got dto.Metric
	if err := m.duration.WithLabelValues(k.Label()).(prometheus.Metric).Write(&got); err != nil {
		return 0
	}
	if n := got.GetHistogram().GetSampleCount(); n > 0 {
		return got.GetHistogram().GetSampleSum() / float64(n)
	}
	return 0
}
