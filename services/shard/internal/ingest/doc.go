// Package ingest is the gate between the wire and the core.
//
// Data is checked once, here, loudly; afterwards it is trusted. The first layer is generated from the protos
// (protovalidate), the second is code for what rules cannot say (quantities, sums, identities), the third reads what a
// conforming peer may send although we would not (soft rules, counted and listed as warnings). One bad need rejects the
// whole roll-up, because a row dropped from a full replacement is a withdrawal that the cluster did not ask for; one bad machine record
// is skipped alone. No knob turns the gate off, nothing is repaired in silence, nothing panics.
//
// A Gate is safe for concurrent use; it holds no state but compiled rules. It knows no session and no provider beyond
// what it is given. Start at Gate.Rollup and Gate.Machine. Tests cite WIRE-3, SHARD-10.
package ingest
