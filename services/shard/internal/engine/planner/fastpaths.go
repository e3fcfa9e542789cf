package planner

// fastPaths says which fast paths are off. The plain path alone is complete, so a plan says the same with any of them off; only tests turn
// one off. docs/engine-performance.md lists where each enters and what it earns.
type fastPaths struct {
	noRuns    bool // acquire_runs.go: each Need takes its own allocation
	noPassing bool // acquire_idle.go: a Need that got nothing in the last plan is asked again
	noSums    bool // acquire_domains.go: a gang adds up each domain itself
	atOnce    bool // no fast path is off; those that begin after some questions do so at once, and trees are narrow: acquire_domains.go, credit_spares.go
	noZones   bool // acquire_spread.go: a spread over zones makes a candidate index of each domain, as for any other key
	noRadix   bool // acquire_order.go: allocations are sorted by comparison
	noAgain   bool // credit_again.go: Needs are made of the rows whenever anything of the cluster changes
}
