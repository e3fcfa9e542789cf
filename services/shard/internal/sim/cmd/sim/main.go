// Command sim runs seeds of the shard's simulator. See docs/simulator.md.
package main

import (
	"os"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/sim"
)

func main() { os.Exit(sim.Main(os.Args[1:], os.Stdout, os.Stderr)) }
