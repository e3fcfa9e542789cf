package shard

import (
	"os"
	"runtime"
)

// leastProcessors is how many goroutines may run at once at least (ADR 1002).
const leastProcessors = 4

// processors is how many goroutines the shard lets run at once. seen is the number of processors of the machine, now how many goroutines may run, and set the variable GOMAXPROCS.
// What a person or a limit of the container has set stays.
func processors(seen, now int, set string) int {
	if set != "" || now != seen {
		return now
	}
	return max(now, leastProcessors)
}

// useProcessors lets the system's scheduler share out a small machine. Go's lets a goroutine that becomes ready wait for ten milliseconds behind each that computes, and between
// a roll-up and its acknowledgement several become ready one after the other.
func useProcessors() {
	seen, now := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	if n := processors(seen, now, os.Getenv("GOMAXPROCS")); n != now {
		runtime.GOMAXPROCS(n)
	}
}
