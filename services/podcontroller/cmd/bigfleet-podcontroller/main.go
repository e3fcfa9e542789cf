// Command bigfleet-podcontroller keeps one CapacityRequest per Pod.
package main

import (
	"os"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

func main() {
	log.SetLogger(logr.Discard()) // a library's global, which complains with a stack trace when unset: our parts log through their own loggers
	os.Exit(process.Execute(podcontroller.NewCommand(), os.Args[1:]))
}
