// Package explain answers why a plan says what it says, and what would change it.
//
//   - ExplainNeed: why a row is met or waits, as a funnel over all machines (need.go, funnel.go; ENG-19.8).
//   - ExplainMachine, NextBest: why a machine is kept, taken or drained (machine.go; ENG-19.6, 19.7).
//   - Reject, Standing: why one machine does not serve a need, and why a holder was not displaced (reject.go).
//   - Suggest: changes of the demand or the fleet that would help, each tried on a copy (suggest.go).
//   - WhatIf: a plan of a copy with edits, once or until nothing changes (whatif.go, whatif_edit.go; ENG-20).
//   - Offers: what is free for a need, for capacity hints (offers.go; SHARD-25.1).
//
// Everything is computed from a Result and the World it was made from, when somebody asks (ENG-19.7). The package decides nothing
// and changes nothing but the lazily kept indexes of the World, so it is not for concurrent use on one World.
package explain
