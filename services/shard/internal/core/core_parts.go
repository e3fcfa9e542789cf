package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"

// wire connects the parts. Each holds those that it calls, and nothing of the core beside them and what all share.
func (c *Core) wire() {
	s := &c.shared
	c.pub = publisher{
		shared: s, admin: &c.admin, coord: &c.coord, dispatcher: &c.dispatcher, guards: &c.guards, ledger: &c.ledger, outages: &c.outages,
		ownership: &c.ownership, pools: &c.pools, reconciler: &c.reconciler,
	}
	c.admin = orders{
		shared: s, commands: &c.commands, coord: &c.coord, guards: &c.guards, machines: &c.machines, ownership: &c.ownership, pools: &c.pools,
		pub: &c.pub, reconciler: &c.reconciler, rollups: &c.rollups,
	}
	c.ownership = ownership{shared: s, coord: &c.coord, machines: &c.machines}
	c.coord = coordinatorState{shared: s, ownership: &c.ownership, reconciler: &c.reconciler, rollups: &c.rollups}
	c.guards = guards{shared: s, coord: &c.coord, machines: &c.machines, ownership: &c.ownership, pools: &c.pools}
	c.dispatcher = dispatcher{
		shared: s, bootstraps: &c.bootstraps, commands: &c.commands, draining: &c.draining, guards: &c.guards, machines: &c.machines,
		ownership: &c.ownership, recovery: &c.recovery,
	}
	c.commands = commands{
		shared: s, bootstraps: &c.bootstraps, coord: &c.coord, dispatcher: &c.dispatcher, draining: &c.draining, guards: &c.guards,
		ledger: &c.ledger, machines: &c.machines, merger: &c.merger, ownership: &c.ownership, pools: &c.pools, reconciler: &c.reconciler,
		recovery: &c.recovery,
	}
	c.bootstraps = bootstraps{shared: s, commands: &c.commands, dispatcher: &c.dispatcher}
	c.draining = draining{
		shared: s, commands: &c.commands, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, machines: &c.machines, recovery: &c.recovery,
	}
	c.machines = machines{
		shared: s, coord: &c.coord, guards: &c.guards, outages: &c.outages, pools: &c.pools, pub: &c.pub, reconciler: &c.reconciler,
		risks: &c.risks,
	}
	c.pools = poolSet{shared: s}
	c.risks = risks{shared: s}
	c.merger = merger{
		shared: s, admin: &c.admin, commands: &c.commands, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, machines: &c.machines,
		ownership: &c.ownership, recovery: &c.recovery,
	}
	c.reconciler = reconciler{
		shared: s, getsByID: map[int64]*get{}, admin: &c.admin, commands: &c.commands, coord: &c.coord, machines: &c.machines, merger: &c.merger,
		ownership: &c.ownership, recovery: &c.recovery, rollups: &c.rollups, sessions: &c.sessions,
	}
	c.outages = outages{shared: s, pub: &c.pub}
	c.rollups = rollups{
		shared: s, poison: map[string]int64{}, bootstraps: &c.bootstraps, coord: &c.coord, draining: &c.draining, machines: &c.machines,
		pub: &c.pub, reconciler: &c.reconciler,
	}
	c.sessions = sessions{
		shared: s, admin: &c.admin, bootstraps: &c.bootstraps, commands: &c.commands, coord: &c.coord, draining: &c.draining, ledger: &c.ledger,
		machines: &c.machines, outages: &c.outages, pub: &c.pub, reconciler: &c.reconciler, rollups: &c.rollups,
	}
	c.ledger = needLedger{shared: s, pools: &c.pools}
	c.cycle = cycleState{
		shared: s, planner: planner.NewPlanner(), coord: &c.coord, dispatcher: &c.dispatcher, draining: &c.draining, ledger: &c.ledger,
		machines: &c.machines, ownership: &c.ownership, pub: &c.pub, sessions: &c.sessions,
	}
	c.recovery = recovery{shared: s, journal: map[string]JournalEntry{}}
	c.reader = reader{
		shared: s, risks: &c.risks, rollups: &c.rollups, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, pub: &c.pub, sessions: &c.sessions,
	}
}
