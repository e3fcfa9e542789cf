package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Fact is what a provider says about one machine, after the gate.
type Fact struct {
	Machine inventory.Machine `n:"1"`
	// Attribution is what the provider echoes of shard_metadata. Keys that were absent or malformed leave zeros (SHARD-13.14).
	Attribution    inventory.Attribution `n:"2"`
	HasAttribution bool                  `n:"3"`
	Owner          string                `n:"4"` // bigfleet.lucy.sh/owner-shard
}

// RollupArrived is one whole demand of one cluster, gated and in core form, or its rejection.
type RollupArrived struct {
	Cluster      string              `n:"1"`
	Session      int64               `n:"2"`
	Arrival      int64               `n:"3"` // grows with each roll-up received by the process
	Rows         []demand.Row        `n:"4"` // sealed
	Overhead     []resource.Quantity `n:"5"`
	Hash         string              `n:"6"` // of the content; equal content, equal hash
	Bytes        int64               `n:"7"`
	Timestamp    int64               `n:"8"` // the sender's own timestamp, repeated in the ack
	Warnings     []Warning           `n:"9"`
	Reject       *Rejection          `n:"10"`
	RowCount     int64               `n:"11"` // rows as sent; Rows is absent from the reduced log when the content is unchanged
	Received     int64               `n:"12"` // Mono when the message came, before the gate; for cycle_lag_seconds. 0: with the event
	OutOfService []OutOfService      `n:"13"` // by machine
	Rooms        []demand.Room       `n:"14"` // what the cluster has learnt of its Nodes
	LabelKeys    []string            `n:"15"` // that Rows name, ascending
	TopologyKeys []string            `n:"16"` // those of them with Same or hard spread
	Width        Width               `n:"17"`
}

// Rejection says why a roll-up was refused (WIRE-3.9).
type Rejection struct {
	Reason    string `n:"1"`
	Message   string `n:"2"`
	NeedIndex int64  `n:"3"` // -1: none
	FieldPath string `n:"4"`
}

// Warning is one soft violation.
type Warning struct {
	Rule string `n:"1"`
	Text string `n:"2"`
}

// Disposition is what became of a roll-up. The numbers are those of the wire.
type Disposition uint8

const (
	DispositionNone      Disposition = 0
	DispositionAccepted  Disposition = 1
	DispositionUnchanged Disposition = 2
	DispositionHeld      Disposition = 3
	DispositionRejected  Disposition = 4
)

func (d Disposition) String() string {
	return [...]string{"none", "accepted", "unchanged", "held", "rejected"}[d]
}

// Kind is the kind of an action.
type Kind = engine.Kind

const kinds = 6 // length of an array indexed by Kind

// allKinds lists the kinds in the order in which their concurrency classes take turns: what frees or gives access first.
var allKinds = [...]Kind{engine.Bootstrap, engine.Provision, engine.Preempt, engine.Reclaim, engine.Delete}

// startOf is the state an action starts from (SHARD-14.1).
func startOf(k Kind) inventory.State {
	switch k {
	case engine.Bootstrap, engine.Delete:
		return inventory.Idle
	case engine.Provision:
		return inventory.Speculative
	}
	return inventory.Configured
}

// firstRPC is the first command of an action.
func firstRPC(k Kind) RPC {
	switch k {
	case engine.Bootstrap:
		return RPCConfigure
	case engine.Provision:
		return RPCCreate
	case engine.Delete:
		return RPCDelete
	}
	return RPCDrain
}

// RPC is a mutating provider call.
type RPC uint8

const (
	RPCCreate RPC = iota + 1
	RPCConfigure
	RPCDrain
	RPCDelete

	rpcs = 5 // length of an array indexed by RPC
)

func (r RPC) String() string { return [rpcs]string{"", "create", "configure", "drain", "delete"}[r] }

// start, middle and target are the states of the edge that a command asks for.
func (r RPC) start() inventory.State {
	return [rpcs]inventory.State{0, inventory.Speculative, inventory.Idle, inventory.Configured, inventory.Idle}[r]
}

func (r RPC) middle() inventory.State {
	return [rpcs]inventory.State{0, inventory.Creating, inventory.Configuring, inventory.Draining, inventory.Deleting}[r]
}

func (r RPC) target() inventory.State {
	return [rpcs]inventory.State{0, inventory.Idle, inventory.Configured, inventory.Idle, inventory.Speculative}[r]
}
