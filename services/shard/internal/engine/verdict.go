package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"

// Status says how a row of demand stands (ENG-19.2). The numbers are those of the wire's NeedState.
type Status uint8

const (
	Met      Status = 1 // Configured machines, and shares on them, cover it
	OnTheWay Status = 2 // covered only with machines that are not Configured yet
	Short    Status = 3
)

// String returns the status in lower case.
func (s Status) String() string {
	names := [...]string{"none", "met", "on-the-way", "short"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Detail is the finer reason of a verdict (ENG-19.4, ENG-19.5). The numbers are those of the wire's NeedDetail; the
// shell adds its own above them.
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

	Details = 21 // length of an array indexed by Detail
)

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
	case DetailNoMatch, DetailDimensionMissing, DetailTooSmall:
		return NoMatchingSupply
	case DetailParked, DetailDomainTooSmall, DetailSpreadBlocked:
		return TopologyUnsatisfiable
	case DetailPreemptionShort:
		return PreemptionExhausted
	}
	return PriorityStarved
}

// Verdict is the answer to one row of demand (ENG-19.3). It holds no machine ids, and no pointer: a shard has one for each
// row, and a collection need not look at them.
type Verdict struct {
	Status      Status
	Detail      Detail
	Reason      UnmetReason
	Hold        demand.Hold
	Satisfiable bool // Same: its domain could cover it with what is free (ENG-10.6 key 2); others: not short

	Claimed   int32 // machines credited to it before anything was acquired
	Bootstrap int32 // Idle machines that this plan gives it
	Provision int32 // Speculative machines that this plan buys for it
	Coming    int32 // machines counted for it that are not Configured yet
	Shared    int32 // machines on which it has shares
	Victims   int32 // found by preemption, whether or not taken

	CoveragePerMille int32 // covered part of the worst dimension

	Missing int32 // position in Block.Missing of a SHORT row, else -1
	Fold    int32 // Row of the folded Need it is a member of, else -1
	Domain  int32 // 1 plus position in Block.Domains of the chosen Same domain, or 0

	Coverage int64 // capped score (ENG-10.2) of what is credited and acquired, for the parking ledger
	Cost     int64 // price of its claims, millionths of a dollar per hour
}
