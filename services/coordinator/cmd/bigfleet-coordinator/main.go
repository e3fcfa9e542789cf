// Command bigfleet-coordinator is one replica of BigFleet's coordinator.
package main

import (
	"os"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

func main() { os.Exit(process.Execute(coordinator.NewCommand(), os.Args[1:])) }
