// Package workload makes the inputs of the benchmarks: fleets, demand, churn, requests and sessions of a stated shape
// and size, the same for the same seed on every machine (design of the benchmarks, section 2).
//
// Most generators return a World: a Fleet of machines and a Demand of needs in columns, one slice per property, so
// that a benchmark can fill its own structures without building half a million messages first. Machine, Pages and
// Rollup turn parts of it into wire messages. Every property is drawn from its own random stream, named by its
// purpose, so that a new column leaves the old ones as they were. Sum is the SHA-256 of all columns; tests pin it at
// two sizes, so that a change of a generator shows as a failed test and starts a new history of results.
//
// It is test gear: a dependency test keeps it out of every binary. It must never read a clock, the environment or
// map order, and it knows nothing of any service: fingerprints and attributions come from the caller (World.Attribution).
//
// Start at Steady; then Gangs, One, Small, NewRequests, NewSessions.
package workload
