// Command bigfleet-operator is BigFleet's agent in one managed cluster.
package main

import (
	"os"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

func main() { os.Exit(process.Execute(operator.NewCommand())) }
