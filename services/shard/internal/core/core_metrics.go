package core

// Metric names what a Sample is about. The shell maps each to one metric of SHARD-29.3; gauges come from Publish.
type Metric uint8

const (
	MetricCycleTriggers Metric = iota + 1
	MetricPlanMismatch
	MetricActions        // kind; Label2 is ByHandover for the second half of a purchase, which is no move of its own
	MetricOutcomes       // kind, outcome
	MetricDropped        //
	MetricDeduped        //
	MetricDeferred       //
	MetricSuppressed     // kind
	MetricDryRun         // kind
	MetricReclaimsCapped //
	MetricReclaimsUnresolved
	MetricEvictionsSkipped
	MetricIdleReleases
	MetricRollups           // disposition
	MetricRollupsRejected   // cluster, reason
	MetricRollupWarnings    // rule
	MetricRollupQuarantined // cluster; a gauge
	MetricRollupBytes
	MetricSessions // event
	MetricStrayAnswers
	MetricMachinesRejected // reason
	MetricUnexpectedEdges  // from, to
	MetricBindingConflicts
	MetricListDuration // provider, mode
	MetricReconcileErrors
	MetricCycleLag
	MetricDispatchWait // kind
	MetricRequestBootstrap
	MetricProviderRPC // "provider\x00rpc", code
	MetricCreatePhase
	MetricConfigurePhase
	MetricDrainPhase
	MetricDeletePhase
	MetricProvisioningLatency // path
	MetricDemandToReady       // path
	MetricFenceReordered
	MetricShortfallLog // a log line, not a metric
	MetricOwnershipRelabels
	MetricOwnershipViolations
	MetricInstructions  // outcome
	MetricInterruptions // provider, capacity type
)

// ByHandover marks a started Bootstrap that a promise brought about (SHARD-15.9).
const ByHandover = "handover"
