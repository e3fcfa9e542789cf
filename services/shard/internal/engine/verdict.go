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
