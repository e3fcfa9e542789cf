// Command bigfleet tries, runs and questions BigFleet. Installed as kubectl-bigfleet it is `kubectl bigfleet`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

func main() {
	log.SetLogger(logr.Discard()) // a library's global: our parts log through their own loggers
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, env.System(), os.Args[1:])
	stop()
	os.Exit(int(code))
}
