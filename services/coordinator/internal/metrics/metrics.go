// Package metrics holds every metric of the coordinator (COORD section 18).
//
// Counters and histograms are written where things happen. Gauges are set by one ticker on every replica, from the
// replicated state and, on the leader, from what shards reported: never from an RPC handler, or a follower would show
// zeros (COORD-18.3). The package decides nothing and reads nothing by itself.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Prefix of every name.
const Prefix = "bigfleet_coordinator_"

// Set is the metrics of one replica.
type Set struct {
	// Raft.
	RaftTerm, FencingTerm, IsLeader, CommitIndex, AppliedIndex prometheus.Gauge
	Peers, PeerLastContact                                     *prometheus.GaugeVec
	Apply                                                      *prometheus.CounterVec
	Elections                                                  prometheus.Counter
	Commit, Fsync                                              prometheus.Observer
	SnapshotAge, SnapshotBytes, DiskBytes                      prometheus.Gauge
	SnapshotSeconds                                            prometheus.Histogram
	Handshakes, Joins                                          *prometheus.CounterVec

	// Shards and what they own.
	Shards, ReportAge                                            *prometheus.GaugeVec
	Reports, ReportSurplus                                       *prometheus.CounterVec
	AddressFlaps, EpochRegressed, TermJumps                      prometheus.Counter
	ReportsWaiting                                               prometheus.Gauge
	Domains, DomainMoves, Conflicts, Exceptions, LegacyProviders prometheus.Gauge

	// Instructions.
	Pending, Stuck  *prometheus.GaugeVec
	Sent, Acks      *prometheus.CounterVec
	AcksWithoutWork prometheus.Counter

	// Moves.
	Moves      *prometheus.GaugeVec
	MovesTotal *prometheus.CounterVec
	Sweep      prometheus.Histogram

	// Admin surface and exports.
	Admin                      *prometheus.CounterVec
	ExportSuccess, ExportBytes prometheus.Gauge
	ExportSeconds              prometheus.Histogram
	ExportErrors               prometheus.Counter
	Restarts                   *prometheus.CounterVec
	reg                        *telemetry.Metrics
}

// New registers all metrics.
func New(m *telemetry.Metrics) (*Set, error) {
	fine := prometheus.ExponentialBuckets(50e-6, 1.6, 28) // 50 µs to 16 s: an fsync on a good disk takes 100 µs
	s := &Set{
		RaftTerm:     m.Gauge("raft_term", "Raft term of this replica."),
		FencingTerm:  m.Gauge("fencing_term", "Replicated fencing term, the coordinator_term on the wire."),
		IsLeader:     m.Gauge("is_leader", "1 on the replica that leads and serves."),
		CommitIndex:  m.Gauge("commit_index", "Highest committed log index that this replica knows."),
		AppliedIndex: m.Gauge("applied_index", "Highest log index that this replica applied."),
		Peers:        m.GaugeVec("peers", "Replicas in the newest configuration.", "suffrage"),
		PeerLastContact: m.GaugeVec("peer_last_contact_seconds",
			"Seconds since the leader heard from a replica, as far as it is above a heartbeat.", "peer"),
		Apply:           m.CounterVec("apply_total", "Proposals by outcome: success, error (Raft refused or timed out), fsm_error.", "outcome"),
		Elections:       m.Counter("elections_total", "Elections this replica won."),
		Commit:          m.HistogramOf("commit_duration_seconds", "Time from a proposal to its application on the leader.", fine).WithLabelValues(),
		Fsync:           m.HistogramOf("fsync_duration_seconds", "Time of one fsync of the log.", fine).WithLabelValues(),
		SnapshotAge:     m.Gauge("snapshot_age_seconds", "Age of the newest Raft snapshot; 0 while there is none."),
		SnapshotBytes:   m.Gauge("snapshot_bytes", "Size of the newest Raft snapshot."),
		DiskBytes:       m.Gauge("disk_bytes", "Size of the data directory."),
		SnapshotSeconds: m.Histogram("snapshot_duration_seconds", "Time to write one Raft snapshot."),
		Handshakes:      m.CounterVec("raft_handshake_refused_total", "Raft connections that were refused.", "reason"),
		Joins:           m.CounterVec("join_attempts_total", "Attempts of this replica to join the group.", "result"),

		Shards:          m.GaugeVec("shards", "Registered shards by state.", "state"),
		ReportAge:       m.GaugeVec("shard_report_age_seconds", "Seconds since the last report to this leader.", "shard"),
		Reports:         m.CounterVec("reports_total", "Reports by result: stored, stale, identity, busy (refused with a time to retry), or the error code.", "result"),
		ReportsWaiting:  m.Gauge("reports_waiting", "Reports that are being read or are queued, measured once per second. Reports above the limit are refused with a time to retry."),
		ReportSurplus:   m.CounterVec("report_surplus_total", "Entries of reports that were dropped because they exceeded a limit.", "what"),
		AddressFlaps:    m.Counter("shard_address_flaps_total", "Changes of a shard's address or provider that came too soon after the last."),
		EpochRegressed:  m.Counter("report_epoch_regressed_total", "Reports with an epoch below the highest recorded one: two processes with one id."),
		TermJumps:       m.Counter("report_term_jumps_total", "Reports whose observed term is implausibly far ahead."),
		Domains:         m.Gauge("domains", "Assigned domains."),
		DomainMoves:     m.Gauge("domain_moves_open", "Handovers under way."),
		Conflicts:       m.Gauge("cluster_binding_conflicts", "Clusters with a live session at two shards."),
		Exceptions:      m.Gauge("exceptions", "Machines whose owner differs from the owner of their domain."),
		LegacyProviders: m.Gauge("providers_shared_with_legacy_shards", "Providers that several shards share although one of them does not know ownership views: that one may adopt every machine."),

		Pending:         m.GaugeVec("pending_instructions", "Instructions without a terminal ack.", "shard"),
		Stuck:           m.GaugeVec("instructions_stuck", "Instructions that were abandoned.", "kind"),
		Sent:            m.CounterVec("instructions_sent_total", "Instructions sent, repetitions included.", "kind"),
		Acks:            m.CounterVec("instruction_acks_total", "Acks of instructions.", "kind", "outcome"),
		AcksWithoutWork: m.Counter("instruction_acks_unknown_total", "Acks of instructions that are not pending."),

		Moves:      m.GaugeVec("moves", "Moves by tier and state.", "tier", "state"),
		MovesTotal: m.CounterVec("moves_total", "Moves that ended.", "tier", "outcome"),
		Sweep:      m.Histogram("rebalance_sweep_duration_seconds", "Time of one sweep of the rebalancer."),

		Admin:         m.CounterVec("admin_requests_total", "Calls of admin RPCs.", "method", "role", "code"),
		ExportSuccess: m.Gauge("snapshot_export_last_success_timestamp_seconds", "When the last export succeeded."),
		ExportBytes:   m.Gauge("snapshot_export_bytes", "Size of the newest export."),
		ExportSeconds: m.Histogram("snapshot_export_duration_seconds", "Time of one export."),
		ExportErrors:  m.Counter("snapshot_export_errors_total", "Exports that failed."),
		Restarts:      m.CounterVec("component_restarts_total", "Restarts of components whose loss is not fatal.", "component"),
		reg:           m,
	}
	build := telemetry.ReadBuild()
	m.GaugeVec("build_info", "Always 1; the labels describe the build.", "version", "commit").WithLabelValues(build.Version, build.Commit).Set(1)
	return s, m.Err()
}

// Close unregisters everything.
func (s *Set) Close() { s.reg.Close() }
