// Command controlplane builds and runs the real Kubernetes control planes of the end-to-end tests.
//
//	controlplane build             compile what this machine lacks (about 7 minutes once, on two idle cores)
//	controlplane up --clusters 2   run control planes in the foreground until interrupted
//
// Data goes to stdout, progress to stderr. Exit status 0 is success, 1 is a control plane that failed while it ran,
// and 2 is one that could not be built or started.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errFailed marks a failure of something that had started.
var errFailed = errors.New("failed while it ran")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "controlplane:", err)
	if errors.Is(err, errFailed) {
		os.Exit(1)
	}
	os.Exit(2)
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "controlplane",
		Short:         "Build and run real Kubernetes control planes on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newBuild(), newUp())
	return root
}
