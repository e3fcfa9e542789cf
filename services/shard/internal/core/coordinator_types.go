package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

type quantity = resource.Quantity

// Attribution says for which row a machine was bound, as the inventory keeps it.
type Attribution = inventory.Attribution

// Lineage is which coordinator this shard follows: the highest fencing term seen and the identity of its group.
type Lineage struct {
	Term int64  `n:"1"`
	UUID string `n:"2"`
}

// View says which machines are this shard's (COORD-9.1).
type View struct {
	Term          int64       `n:"1"`
	Index         uint64      `n:"2"`
	Provider      string      `n:"3"`
	PartitionKeys []string    `n:"4"`
	OnlyShard     bool        `n:"5"`
	DefaultOwner  bool        `n:"6"`
	Owned         []DomainRef `n:"7"`
	ForeignOwned  []DomainRef `n:"8"`
	In            []Exception `n:"9"`
	Out           []Exception `n:"10"`
	Clusters      []string    `n:"11"`
	Released      []string    `n:"12"`
	Quotas        []Quota     `n:"13"`
	Inherited     []Inherited `n:"14"`
	Under         string      `n:"15"` // address of the providers when it was obeyed
	Arriving      []string    `n:"16"` // moves to this shard that the leader has not decided yet
	Returned      []Exception `n:"17"` // exceptions that ended here; the leader has not heard of it yet
	Region        string      `n:"18"` // of machines without a region label
}

// Inherited is a cluster bound here whose machines were configured by shards that let go of it: machines that carry
// their names are this shard's.
type Inherited struct {
	Cluster string   `n:"1"`
	From    []string `n:"2"`
}

// DomainRef is one value of one partition key.
type DomainRef struct {
	Key   string `n:"1"`
	Value string `n:"2"`
}

// Exception is one machine that a move gave to another owner than its domain says.
type Exception struct {
	Machine string `n:"1"`
	Owner   string `n:"2"`
	Move    string `n:"3"`
}

// Quota is how many elastic machines this shard may hold in one region (COORD-11.2).
type Quota struct {
	Provider string `n:"1"`
	Region   string `n:"2"`
	Machines int64  `n:"3"`
}

// Reservation is a set of machines kept for a move to another shard (COORD-12.12).
type Reservation struct {
	Move     string   `n:"1"`
	To       string   `n:"2"`
	Machines []string `n:"3"` // sorted
}

// DoneAck is the remembered answer to an instruction (COORD-8.4).
type DoneAck struct {
	ID       string   `n:"1"`
	Machines []string `n:"2"`
}

// CoordinatorReplied is the answer to a report, or its failure.
type CoordinatorReplied struct {
	Term           int64         `n:"1"`
	UUID           string        `n:"2"`
	Previous       []string      `n:"3"`
	Instructions   []Instruction `n:"4"` // by sequence number
	Failed         bool          `n:"5"`
	Decommissioned bool          `n:"6"`
	EpochDisputed  bool          `n:"7"`
	Text           string        `n:"8"`
	Address        string        `n:"9"`
}

// Instruction is one order of the coordinator. Exactly one payload is set, or none when it was not understood.
type Instruction struct {
	ID       string `n:"1"`
	Term     int64  `n:"2"`
	Sequence int64  `n:"3"`
	Attempt  int64  `n:"4"`
	Invalid  string `n:"5"` // why the payload breaks a rule or is unknown

	SetView        *View                `n:"6"`
	Assign         *DomainRef           `n:"7"`
	Unassign       *DomainRef           `n:"8"`
	ReleaseCluster string               `n:"9"`
	Reserve        *ReserveInstruction  `n:"10"`
	Transfer       *TransferInstruction `n:"11"`
	CancelMove     string               `n:"12"`
}

// ReserveOrder asks a donor for machines.
type ReserveInstruction struct {
	Move         string               `n:"1"`
	To           string               `n:"2"`
	InstanceType string               `n:"3"`
	Zone         string               `n:"4"`
	CapacityType uint8                `n:"5"`
	Requirements []demand.Requirement `n:"6"`
	MinUnit      []resource.Quantity  `n:"7"`
	Count        int64                `n:"8"`
	Tier         uint8                `n:"9"`
	Priority     int32                `n:"10"`
	Interruption demand.Bucket        `n:"11"`
}

// TransferOrder asks a recipient to adopt machines, and then the donor to let them go.
type TransferInstruction struct {
	Move        string   `n:"1"`
	From        string   `n:"2"`
	To          string   `n:"3"`
	Machines    []string `n:"4"`
	Speculative bool     `n:"5"`
}

// AckInstruction answers an instruction in the next report.
type AckInstruction struct {
	ID        string             `n:"1"`
	Term      int64              `n:"2"`
	Outcome   InstructionOutcome `n:"3"`
	Reason    string             `n:"4"`
	Machines  []string           `n:"5"`
	Retryable bool               `n:"6"`
	Store     []Persist          `n:"7"` // to be on the disk before the answer leaves
}

// InstructionOutcome is the answer to an instruction. The numbers are those of the wire.
type InstructionOutcome uint8

const (
	InstructionAccepted InstructionOutcome = 1
	InstructionStale    InstructionOutcome = 2
	InstructionInvalid  InstructionOutcome = 3
	InstructionFailed   InstructionOutcome = 4
)

// DoneSet and DomainSet are how shard.db keeps these lists.
type (
	DoneSet struct {
		Acks []DoneAck `n:"1"`
	}
	DomainSet struct {
		Domains []DomainRef `n:"1"`
	}
)

// keptCoordinator is what a checkpoint keeps of the coordinator as it is.
type keptCoordinator struct {
	Decommissioned bool                 `n:"1"`
	Disputed       bool                 `n:"2"`
	Plain          bool                 `n:"3"`  // a coordinator that does not partition has answered
	Alone          bool                 `n:"11"` // no coordinator has answered for so long that this shard is the only one (COORD-9.10)
	Text           string               `n:"4"`
	Address        string               `n:"5"`
	RepliedAt      int64                `n:"6"`
	Quotas         bool                 `n:"9"`
	Waiting        []pendingInstruction `n:"7"` // instructions that cannot be answered yet
}

// KeyRemoved is where the bucket "control" keeps that this shard was removed from the fleet.
const KeyRemoved = "removed"

// pendingInstruction is one whose answer waits for operations or Gets.
type pendingInstruction struct {
	Instruction Instruction `n:"1"`
	Deadline    int64       `n:"2"`
	Pending     []string    `n:"3"` // machines still to be looked at
	Taken       []string    `n:"4"`
}

// CoordinatorStatus describes the coordinator client's side of the core.
type CoordinatorStatus struct {
	Lineage        Lineage
	View           *View
	RepliedAt      int64
	Decommissioned bool
	Disputed       bool
	Text           string
	Address        string
	Error          string // of the last report; filled in by the shell
	Domains        []DomainRef
	Reservations   []Reservation
}
