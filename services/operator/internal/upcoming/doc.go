// Package upcoming keeps one UpcomingNode per machine in step with what the shard says.
//
// A Writer folds node states in the order of their arrival into the phase that the object should show, and writes that
// phase in the background: states that follow each other closely become one write, a write that fails is repeated until
// it succeeds or is outdated, and a state that changes nothing causes none. Patches carry no resource version, because
// updates from a cache conflict in every burst.
//
// The objects are for people and tools. The one thing that is read back is the phase of an object that exists already
// when the operator starts, so that a machine that was leaving is still known to be leaving.
//
// Update, SetDrain and Touch only note what changed and never block. Start at Writer.Update, then fold.
// Tests cite the operator specification as OP-n.n.
package upcoming
