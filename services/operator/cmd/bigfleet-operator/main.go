// Command bigfleet-operator is BigFleet's agent in one managed cluster.
package main

import (
	"os"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

func main() {
	log.SetLogger(logr.Discard()) // a library's global, which complains with a stack trace when unset: our parts log through their own loggers
	os.Exit(process.Execute(operator.NewCommand(), os.Args[1:]))
}
