// Package engine decides what a shard does next.
//
// Plan compares the capacity bound to each cluster with the capacity each cluster asks for. It answers with an ordered
// list of actions, one verdict per row of demand, and the claims behind them: equal inputs give equal bytes, on any
// number of workers and whatever was planned before (ENG-2.2). It counts capacity; it never places a Pod (ENG-2.3).
//
// It owns no state, reads no clock, file, socket, random source or map order, and never judges a failure: the core does.
// It never fails; a broken invariant is a panic (ENG-2.12).
//
// # How the core drives it
//
// One core has one World. Between plans the core alone writes to World.Demand and World.Inventory (their packages say
// how). A cycle is: Inventory.Advance(now); holds, facts and marks brought up to date; Planner.Plan; then the core
//
//   - stores Result.Promises with Inventory.SetPromise: promises that changed hands (ENG-15.4);
//   - replaces the decisions not yet started by Result.Actions, in that order. Starting one, it moves the machine,
//     and stores Result.Promise(a) for actions that make one and Result.Stamp(a) for those that bind;
//   - feeds its ledgers from the verdicts: Parking (ENG-18), Sharing (ENG-11), Join (ENG-17);
//   - asks Result.HandsOver when a promised machine becomes Idle (ENG-5.9).
//
// A Result is self-contained and never changed afterwards, except that it names machines by Index: it is meant for the
// time until the next Advance. Planner gives the same bytes as Plan and remembers between calls what did not change
// (ENG-21); it may be dropped at any time. Plan and Planner bring lazily kept indexes of the World up to date and are
// therefore not for concurrent use on one World; use Clone for a what-if elsewhere.
//
// # How it is asked why
//
// ExplainNeed, ExplainMachine and WhyNot answer from a Result and the World it was made from; Suggest tries changes and
// names one that helps; WhatIf plans a copy with edits, once or until it comes to rest (ENG-19.8, ENG-20). They change
// nothing, but for the lazily kept indexes.
//
// Start at Plan, then credit.go and turns.go; what a second goroutine does beside the turns is in chores.go. Tests cite clauses of docs/spec/engine.md as ENG-n.n.
package engine
