package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
)

// Exit codes of roles (OPS-2.5). The CLI has more; its errors carry them with ExitCode() int.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ExitCode maps the error of a role to its exit code: 0 for nil, what the error says with a method ExitCode() int, else 1.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var coded interface {
		error
		ExitCode() int
	}
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return ExitFailed
}

// Main runs a whole program and returns its exit code. The context ends with the first SIGTERM or SIGINT; a second
// one kills the process at once. An error is one line on stderr, after name.
func Main(name string, stderr io.Writer, run func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return ExitCode(err)
}

// usageError is wrong use of the command line.
type usageError struct{ error }

func (usageError) ExitCode() int   { return ExitUsage }
func (e usageError) Unwrap() error { return e.error }

// Execute is Main for the command of a role and its arguments: os.Exit(process.Execute(shard.NewCommand(), os.Args[1:])).
// Whatever goes wrong before a RunE starts (unknown flag, wrong arguments) is exit code 2.
func Execute(cmd *cobra.Command, args []string) int {
	return Main(cmd.Name(), cmd.ErrOrStderr(), func(ctx context.Context) error { return ExecuteContext(ctx, cmd, args) })
}

// ExecuteContext runs cmd once under ctx. ExitCode of its error is 2 when no RunE was reached.
func ExecuteContext(ctx context.Context, cmd *cobra.Command, args []string) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	started := false
	observe(cmd, &started)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !started {
		return usageError{fmt.Errorf("%w\nRun '%s --help' for usage", config.FlagErrors(cmd, args, err), cmd.CommandPath())}
	}
	return err
}

// observe notes in started when any command's RunE begins.
func observe(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			*started = true
			return run(c, args)
		}
	}
	for _, sub := range cmd.Commands() {
		observe(sub, started)
	}
}
