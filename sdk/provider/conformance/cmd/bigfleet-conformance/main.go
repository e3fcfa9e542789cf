// Command bigfleet-conformance certifies a capacity provider at an address. See package conformance.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cmd := conformance.Command()
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	os.Exit(conformance.ExitCode(err))
}
