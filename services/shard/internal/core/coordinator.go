package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// coordinatorState is what the core knows of the coordinator beyond Control.
type coordinatorState struct {
	decommissioned bool
	disputed       bool
	answered       bool // a coordinator has answered in this process
	text           string
	address        string
	repliedAt      int64
	foreign        int
	owners         map[string]string // shard named by the metadata of a bound machine, where it is not ours
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

func (c *Core) coordStatus() CoordinatorStatus {
	return CoordinatorStatus{Lineage: c.ctl.Coordinator, View: c.ctl.View, RepliedAt: c.coord.repliedAt, Decommissioned: c.coord.decommissioned,
		Disputed: c.coord.disputed, Text: c.coord.text, Address: c.coord.address, Domains: c.ctl.Domains, Reservations: c.ctl.Reservations}
}

func (c *Core) startOwnership() {}

// ownMachine marks a machine that another shard owns.
func (c *Core) ownMachine(i inventory.Index, f Fact) {}

func (c *Core) coordinatorReplied(e CoordinatorReplied) {}

func (c *Core) retryInstructions() {}

func (c *Core) applyQuotas() {}

func (c *Core) quotaUsedUp(i inventory.Index) bool { return false }

func (c *Core) dropReservation(move string) {}
