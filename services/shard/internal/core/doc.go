// Package core is the shard's state machine: everything the shard knows and every decision it makes about when and how
// to act on what the engine planned.
//
// Step takes one event and returns effects in the order in which they must start. The core has no goroutine, lock,
// clock, I/O or random source, and no map order reaches a decision. What takes long it hands to the loop, with the event that says that it is made
// (core_beside.go). Time arrives in events, ids come from the epoch and
// counters, jitter is a hash. One recorded history therefore gives one sequence of effects, in production, in the
// simulator, and in a replay of the decision log (SHARD-4).
//
// The core owns the demand table and the inventory (through engine.World), sessions as far as decisions need them, open
// operations, deadlines, the guards between a decision and its start, and the ledgers. It never blocks, never fails,
// never sees a secret, and never judges by the text of a message. The shell around it turns I/O into events and effects
// into I/O.
//
// The core is made of parts. Each is a type that owns what it decides by and holds the parts that it calls; core_parts.go has them all. All read and
// write a step: the moment, the fleet, the last plan, deadlines, effects (core_shared.go). Most hold shared, which is a step and what is under way: open
// operations, calls of providers, orders of people.
// The prefix of a file names its area; the one that ends in _types declares its data. Read them in this order:
//
//	core.go, core_*   Core, shared: Step, events, effects, configuration, timers, records, invariants   SHARD-4, 5, 6.11, 31 to 33
//	demand_*          sessions, rollups, needLedger: clusters, roll-ups and their guard, unmet needs     SHARD-7, 8, 11, 12, 26
//	machine_*         merger, machines, poolSet, risks: facts, moves between states, interruptions        SHARD-13, 14, 18
//	provider_*        reconciler, outages: Lists, Gets, outcomes of calls, circuit breaker, fencing       SHARD-13, 14.6 to 14.12, 20
//	plan_*            planning: when the engine plans, and what happens to its actions                    SHARD-6
//	action_*          guards, dispatcher, commands, bootstraps: from a decision to its outcome            SHARD-15, 16, 19
//	drain_*           draining: reclaim instructions, drains, evictions for moves                         SHARD-17
//	coordinator_*     coordinatorState, ownership: views, moves, exceptions                               SHARD-21, COORD-9 to 12
//	admin_*           orders: what people order                                                           SHARD-24
//	read_*            reader, publisher: what readers and operators are shown                             SHARD-18, 23, 25, 26
//	checkpoint_*      recovery; snapshots, restore, journal, reduced events                               SHARD-3, 13.15, 28
//
// Start at Core.Step. Tests cite clauses of docs/spec/shard.md as SHARD-n.n.
package core
