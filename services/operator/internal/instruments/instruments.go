// Package instruments holds the operator's metrics under exactly the names of its specification (OP-19).
//
// New registers them on the registry of one operator; several operators in one process use several registries. Code
// that counts gets the Instruments and increments; no decision reads a metric.
package instruments

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Instruments are the metrics of one operator.
type Instruments struct {
	RollupDuration       prometheus.Histogram
	RollupPhase          *prometheus.HistogramVec // phase
	RollupSend           prometheus.Histogram
	Rollups              *prometheus.CounterVec // result
	RollupBytes          prometheus.Gauge
	RollupRows           prometheus.Gauge
	AggregationMismatch  prometheus.Counter
	Requests             *prometheus.GaugeVec // phase
	RequestsInvalid      prometheus.Gauge
	AcknowledgeDuration  prometheus.Histogram
	Acknowledged         prometheus.Counter
	Reconnects           prometheus.Counter
	OutboxDropped        prometheus.Counter
	Connected            prometheus.Gauge
	UnknownFrames        *prometheus.CounterVec   // kind
	NodeStateUpdate      *prometheus.HistogramVec // phase
	UpcomingWrites       *prometheus.CounterVec   // op, outcome
	DispatchInflight     prometheus.Gauge
	Bootstrap            *prometheus.CounterVec // result
	BootstrapDuration    prometheus.Histogram
	BootstrapTokens      *prometheus.GaugeVec // state
	Drains               *prometheus.GaugeVec // state
	DrainDuration        *prometheus.HistogramVec
	Evictions            *prometheus.CounterVec // result
	IdentityConflicts    prometheus.Gauge
	NodesNeverJoined     prometheus.Gauge
	NodesNotFound        prometheus.Counter
	Leader               prometheus.Gauge
	EventsDropped        prometheus.Counter
	PodToNode            prometheus.Histogram
	QuantitiesUnreadable prometheus.Counter

	metrics *telemetry.Metrics
}

// Reads are values that are read at each scrape.
type Reads struct {
	CacheAge, AcceptedAge func() float64 // seconds
	EvictionsStopped      func() bool
}

// New registers the metrics.
func New(reg prometheus.Registerer, r Reads) (*Instruments, error) {
	m := telemetry.NewMetrics(reg, "bigfleet_operator_")
	i := &Instruments{
		RollupDuration:       m.Histogram("rollup_duration_seconds", "From the decision to send a roll-up until it was handed to the session."),
		RollupPhase:          m.HistogramVec("rollup_phase_duration_seconds", "Parts of rollup_duration_seconds: list (rebuild from the cache), build (rows), enqueue.", "phase"),
		RollupSend:           m.Histogram("rollup_send_duration_seconds", "From handing a roll-up to the session until the shard's acknowledgement."),
		Rollups:              m.CounterVec("rollups_total", "Roll-ups by what became of them: accepted, unchanged, held, rejected, unknown, too_large.", "result"),
		RollupBytes:          m.Gauge("rollup_bytes", "Size of the last roll-up."),
		RollupRows:           m.Gauge("rollup_rows", "Rows of the last roll-up."),
		AggregationMismatch:  m.Counter("aggregation_mismatch_total", "Rebuilds of the demand that differed from the incremental state: a bug."),
		Requests:             m.GaugeVec("requests", "CapacityRequests by phase.", "phase"),
		RequestsInvalid:      m.Gauge("requests_invalid", "CapacityRequests that cannot be translated."),
		AcknowledgeDuration:  m.Histogram("acknowledge_duration_seconds", "Duration of one patch that acknowledges a request."),
		Acknowledged:         m.Counter("acknowledged_total", "CapacityRequests acknowledged."),
		Reconnects:           m.Counter("session_reconnects_total", "Sessions that were open and ended."),
		OutboxDropped:        m.Counter("outbox_dropped_total", "Responses and reports dropped because too many waited."),
		Connected:            m.Gauge("session_connected", "1 while a session is open and acknowledged."),
		UnknownFrames:        m.CounterVec("frames_ignored_total", "Frames of the shard that were ignored, by reason.", "reason"),
		NodeStateUpdate:      m.HistogramVec("node_state_update_duration_seconds", "From the arrival of a node state until its UpcomingNode is written, by phase.", "phase"),
		UpcomingWrites:       m.CounterVec("upcoming_node_writes_total", "Writes of UpcomingNodes.", "op", "outcome"),
		DispatchInflight:     m.Gauge("dispatch_inflight", "Node states being written."),
		Bootstrap:            m.CounterVec("bootstrap_total", "Bootstrap requests by result: ok or the class of the error.", "result"),
		BootstrapDuration:    m.Histogram("bootstrap_duration_seconds", "From a bootstrap request to its answer."),
		BootstrapTokens:      m.GaugeVec("bootstrap_tokens", "Bootstrap tokens: pooled or handed_out.", "state"),
		Drains:               m.GaugeVec("drains", "Drains of nodes by state: running, blocked.", "state"),
		DrainDuration:        m.HistogramVec("drain_duration_seconds", "Duration of drains by outcome: drained, deadline, stopped, node_gone.", "outcome"),
		Evictions:            m.CounterVec("evictions_total", "Evictions by result: evicted, gone, blocked, error.", "result"),
		IdentityConflicts:    m.Gauge("node_identity_conflicts", "Machines that more than one Node could be."),
		NodesNeverJoined:     m.Gauge("nodes_never_joined", "Machines that are Configured and have had no Ready Node for the join timeout."),
		NodesNotFound:        m.Counter("reclaim_nodes_not_found_total", "Entries of reclaim instructions that name no Node of this cluster."),
		Leader:               m.Gauge("leader", "1 while this process holds the Lease."),
		EventsDropped:        m.Counter("events_dropped_total", "Kubernetes events that were not written."),
		PodToNode:            m.Histogram("pod_to_node_seconds", "From the creation of a Pod until its Node is Ready, for Pods that waited for a new node."),
		QuantitiesUnreadable: m.Counter("quantities_unreadable_total", "Quantities of the shard's frames that cannot be read and were skipped."),
		metrics:              m,
	}
	m.GaugeFunc("cache_age_seconds", "How long the watch of CapacityRequests has been broken; 0 while it works.", r.CacheAge)
	m.GaugeFunc("rollup_accepted_age_seconds", "Age of the last roll-up that the shard accepted; -1 before the first.", r.AcceptedAge)
	m.GaugeFunc("evictions_stopped", "1 while the ConfigMap bigfleet-operator-stop stops all evictions.", func() float64 {
		if r.EvictionsStopped() {
			return 1
		}
		return 0
	})
	return i, m.Err()
}

// Close unregisters the metrics.
func (i *Instruments) Close() { i.metrics.Close() }

// Table lists the metrics, for the reference page.
func (i *Instruments) Table() []telemetry.MetricRow { return i.metrics.Table() }
