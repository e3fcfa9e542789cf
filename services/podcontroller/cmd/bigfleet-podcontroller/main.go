// Command bigfleet-podcontroller keeps one CapacityRequest per Pod.
package main

import (
	"os"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

func main() { os.Exit(process.Execute(podcontroller.NewCommand())) }
