// Package planner decides what a shard does next.
//
// Plan compares the capacity bound to each cluster with the capacity each cluster asks for. It answers with an ordered
// list of actions, one verdict per row of demand, and the claims behind them: equal inputs give equal bytes, on any
// number of workers and whatever was planned before (ENG-2.2). It counts capacity; it never places a Pod (ENG-2.3).
//
// It owns no state, reads no clock, file, socket, random source or map order, and never judges a failure: the core does.
// It never fails; a broken invariant is a panic (ENG-2.12).
//
// Planner gives the same bytes as Plan and remembers between calls what did not change (ENG-21); it may be dropped at any
// time. Plan and Planner bring lazily kept indexes of the World up to date and are therefore not for concurrent use on one
// World.
//
// # Fast paths
//
// The plain path alone is complete. fastpaths.go names the fast paths and how tests turn each off; docs/engine-performance.md says what
// each earns. workers.go is the only file that starts goroutines.
//
// # Files
//
// A prefix names the phase. plan.go runs the phases (plan_sweep.go forgets what no plan uses), and planning.go lists the steps and which may
// use which. clusters.go follows which clusters changed; cluster.go and cluster_* hold the state of one.
//
//   - credit_*: which machines each need has already: normalisation, own machines, shares, domains (ENG-8 to 11, 17).
//   - acquire_*: allocations, one need after the other: domains of gangs, spreads, exchange (ENG-7, 10, 12, 13.10).
//     Package cover finds the cheapest machines (ENG-13).
//   - preempt.go, preempt_*: machines of needs with lower priority (ENG-15).
//   - settle.go, settle_*: actions, verdicts and the published result (ENG-16, 19).
//
// Start at Plan, then credit.go and acquire.go. Tests cite clauses of docs/spec/engine.md as ENG-n.n.
package planner
