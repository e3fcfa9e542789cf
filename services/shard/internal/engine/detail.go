package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// Detail is the finer reason of a verdict (ENG-19.4, ENG-19.5). The numbers are those of the wire's NeedDetail; the
// shell has details of its own, which no plan gives: 21 to 28, and 32. A detail is a constant, a line of detailCodes and a case of Reason.
type Detail uint8

const (
	NoDetail               Detail = 0
	DetailClusterOffline   Detail = 1
	DetailBootstrapBackoff Detail = 2
	DetailParked           Detail = 3
	DetailDomainTooSmall   Detail = 4
	DetailNoMatch          Detail = 5
	DetailDimensionMissing Detail = 6
	DetailTooSmall         Detail = 7
	DetailSpreadBlocked    Detail = 8
	DetailNodeNotJoined    Detail = 9
	DetailPreemptionShort  Detail = 10
	DetailStockOut         Detail = 11
	DetailQuota            Detail = 12
	DetailWithheld         Detail = 13
	DetailHeldByOthers     Detail = 14
	DetailStarting         Detail = 15
	DetailCreating         Detail = 16
	DetailWaitingForDrain  Detail = 17
	DetailNodeNotReady     Detail = 18
	DetailUnplaced         Detail = 19
	DetailSpreadIgnored    Detail = 20
	DetailGangShort        Detail = 29
	DetailOtherShard       Detail = 30
	DetailPostponed        Detail = 31
)

// Details is the length of an array indexed by Detail.
const Details = len(detailCodes)

// detailCodes says each detail that a plan gives.
var detailCodes = [...]code{
	NoDetail:               {"", "No further detail.", ""},
	DetailClusterOffline:   {"CLUSTER_OFFLINE", "The cluster's operator is not connected, so nothing is bought for it.", "Bring the operator back; demand is kept."},
	DetailBootstrapBackoff: {"BOOTSTRAP_BACKOFF", "The last bootstrap for this need failed. The next attempt follows after a backoff.", "Check the cluster's bootstrap template."},
	DetailParked:           {"PARKED", "No domain can hold the gang, and retries have not helped. It waits for the next probe.", "Add machines to one domain, or make the gang smaller."},
	DetailDomainTooSmall:   {"DOMAIN_TOO_SMALL", "No domain can hold the gang, even with all machines of the domain free.", "Make the gang smaller, use larger machines, or a wider topology key."},
	DetailNoMatch:          {"NO_MATCH", "No machine matches the requirements, in any state.", "Remove a requirement (node selector, affinity), or add matching machines."},
	DetailDimensionMissing: {"DIMENSION_MISSING", "Machines match, but none of them offers one of the requested resources.", "Add machines that offer the resource."},
	DetailTooSmall:         {"TOO_SMALL", "Machines match, but none is large enough for one of these Pods.", "Request less for each Pod, or add larger machines."},
	DetailSpreadBlocked:    {"SPREAD_BLOCKED", "Machines are free, but only in domains that the spread constraint excludes.", "Add machines in the other domains, or increase maxSkew."},
	DetailNodeNotJoined:    {"NODE_NOT_JOINED", "A machine was configured, but its Node never joined the cluster.", "Check the bootstrap template and the network of the Nodes."},
	DetailPreemptionShort:  {"PREEMPTION_SHORT", "Machines of lower priority could be preempted, but they free too little capacity.", "Add machines, or raise the priority."},
	DetailStockOut:         {"STOCK_OUT", "The suitable machines are out of stock at the provider.", "Allow other types, zones or capacity types."},
	DetailQuota:            {"QUOTA", "The quota for the suitable machines is used up.", "Raise the quota, or allow other types."},
	DetailWithheld:         {"WITHHELD", "The suitable machines are withheld.", "`bigfleet history machine/ID` shows why a machine is withheld."},
	DetailHeldByOthers:     {"HELD_BY_OTHERS", "No suitable machine is free.", "Add machines, or raise the priority."},
	DetailStarting:         {"STARTING", "Machines are being configured.", "No action is needed: their Nodes will join."},
	DetailCreating:         {"CREATING", "Machines are being created.", "No action is needed: they are configured as soon as they exist."},
	DetailWaitingForDrain:  {"WAITING_FOR_DRAIN", "The need waits for machines that are being drained.", "No action is needed unless a drain is stuck: `bigfleet get drains` names what blocks it."},
	DetailNodeNotReady:     {"NODE_NOT_READY", "A Node that joined is no longer Ready.", "Check the Node; the cluster is responsible for its recovery."},
	DetailUnplaced:         {"UNPLACED", "There is enough capacity, but the scheduler has not placed all Pods.", "Check the events of the pending Pods."},
	DetailSpreadIgnored:    {"SPREAD_IGNORED", "The spread constraint is ignored because the need requires a single domain.", "Remove the spread constraint or the single-domain requirement."},
	DetailGangShort:        {"GANG_SHORT", "Too few suitable machines are free for the Pods of the gang that start together, so nothing is bought for it.", "Add machines, make the gang smaller, or raise the priority."},
	DetailOtherShard: {"OTHER_SHARD", "The suitable machines that are free belong to another shard.",
		"The coordinator moves machines to a shard that stays short. `bigfleet rebalance status` shows what it waits for, and `bigfleet get moves` the moves."},
	DetailPostponed: {"POSTPONED", "The needs of this cluster look at more racks or zones than one plan can; this one has its turn in one of the next plans.",
		"No action is needed. Fewer workloads that spread over racks, or keep to one, are served sooner."},
}

// MarkDetails are what marks on the machines that suit a need say of it, those named first that win a tie.
var MarkDetails = [...]Detail{DetailStockOut, DetailQuota, DetailWithheld}

// DetailOfMark is which of them a mark gives.
func DetailOfMark(r inventory.WithheldReason) Detail {
	switch r {
	case inventory.WithheldStockOut:
		return DetailStockOut
	case inventory.WithheldQuota:
		return DetailQuota
	}
	return DetailWithheld
}

// Planned reports whether a plan gives the detail. The others are the shell's.
func (d Detail) Planned() bool { return d == NoDetail || codeOf(detailCodes[:], int(d)).name != "" }

// String returns the name of the detail as the wire spells it, without its prefix.
func (d Detail) String() string { return nameOf(detailCodes[:], int(d)) }

// Sentence says the detail in words.
func (d Detail) Sentence() string { return codeOf(detailCodes[:], int(d)).say }

// Remedy says what could be done about the detail, or "".
func (d Detail) Remedy() string { return codeOf(detailCodes[:], int(d)).do }

// UnmetReason is the coarse reason of a SHORT row. The numbers are those of the wire.
type UnmetReason uint8

const (
	NoUnmetReason         UnmetReason = 0
	PriorityStarved       UnmetReason = 1
	NoMatchingSupply      UnmetReason = 2
	TopologyUnsatisfiable UnmetReason = 3
	PreemptionExhausted   UnmetReason = 4
)

// Reason is the coarse reason of a short row with this detail, by the table of ENG-19.4.
func (d Detail) Reason() UnmetReason {
	switch d {
	case DetailNoMatch, DetailDimensionMissing, DetailTooSmall, DetailOtherShard:
		return NoMatchingSupply
	case DetailParked, DetailDomainTooSmall, DetailSpreadBlocked:
		return TopologyUnsatisfiable
	case DetailPreemptionShort:
		return PreemptionExhausted
	}
	return PriorityStarved
}

var reasonCodes = [...]code{
	{"", "Satisfied.", ""},
	{"PRIORITY_STARVED", "Needs of equal or higher precedence hold the matching supply.", ""},
	{"NO_MATCHING_SUPPLY", "No suitable machine is in this shard.", ""},
	{"TOPOLOGY_UNSATISFIABLE", "The topology constraint cannot be met in this shard.", ""},
	{"PREEMPTION_EXHAUSTED", "Machines of lower priority could be preempted, but they free too little capacity.", ""},
}

// String returns the name of the reason as the wire spells it, without its prefix.
func (r UnmetReason) String() string { return nameOf(reasonCodes[:], int(r)) }
