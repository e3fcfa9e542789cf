// Package engine is the vocabulary of planning: what a plan is made from and what it says.
//
// An Input is a World (demand and inventory), a cycle and a Policy. A Result is an ordered list of actions (ENG-2.10), one
// Verdict per row of demand (ENG-19), and the claims behind them. This package owns these types, the text of their codes
// (ENG-19.10), and what can be read from a Result alone: View, Keep, Promise, HandsOver. Audit checks a Result against the
// invariants before anything of it is carried out (ENG-2.12).
//
// It decides nothing; the planner does. It reads no clock, file, socket, random source or map order.
//
// # Packages
//
//   - planner makes the decisions: credit, acquisition, preemption and settlement. Start there to read the algorithm.
//   - explain says why: funnels, kept machines, suggestions, what-if plans (ENG-19.8, 20).
//   - match says which classes of machines a need can use, and what they supply (ENG-3, 4, 6).
//   - ledger remembers between plans: parked gangs, sharing levels, headroom, machines that never joined.
//   - reference is the same algorithm in its simplest form, for tests and readers.
//
// # How the core drives it
//
// One core has one World. Between plans the core alone writes to World.Demand and World.Inventory (their packages say
// how). A cycle is: Inventory.Advance(now); holds, facts and marks brought up to date; planner.Planner.Plan; then the core
//
//   - stores Result.Promises with Inventory.SetPromise: promises that changed hands (ENG-15.4);
//   - replaces the decisions not yet started by Result.Actions, in that order. Starting one, it moves the machine,
//     and stores Result.Promise(a) for actions that make one and Result.Attribution(a) for those that bind;
//   - passes the verdicts to its ledgers: parking (ENG-18), sharing (ENG-11), joining (ENG-17);
//   - asks Result.HandsOver when a promised machine becomes Idle (ENG-5.9).
//
// A Result is self-contained and never changed afterwards, except that it names machines by Index: it is meant for the
// time until the next Advance. Use World.Clone or World.Freeze for a what-if elsewhere.
package engine
