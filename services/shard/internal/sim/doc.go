// Package sim runs whole fleets over the production core in virtual time.
//
// One run is one seed, one goroutine and one heap of events ordered by (time, number). The shell is replaced by models
// of what surrounds a shard: providers, the network, clusters with Pods and a scheduler, operators, the process with its
// disk, and people who pause things. The core is the real one. Every draw comes from generators made from the seed, one
// per part and one per kind of fault, so switching a kind off leaves all other draws as they were: that is what makes a
// failing run shrinkable.
//
// After each step the safety rules of SHARD-33.5 are checked by a model of its own (check.go and its neighbours), which
// knows what the provider really did and what every operator really sent. A run ends with a fault-free tail in which the
// liveness rules of SHARD-33.6 must come true.
//
// The package never reads a clock, and nothing outside tests and its command imports it. Start at Run, then sim.go,
// process.go and check.go; faults.go lists what can go wrong. Tests cite clauses of docs/spec/shard.md.
package sim
