package cli

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// Program is the process: the command line of the operating system, its signals, its exit code. It does not return.
func Program() {
	quiet := logr.Discard() // globals of libraries: our parts log through their own loggers
	log.SetLogger(quiet)
	klog.SetLogger(quiet)
	signal.Ignore(syscall.SIGPIPE) // a reader that had enough, like head, is not a failure: see Main
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { <-ctx.Done(); stop() }() // a second signal ends it at once
	code := Main(ctx, env.System(), args(os.Args))
	stop()
	os.Exit(int(code))
}

// args are the arguments without the program's name. kubectl's completion calls kubectl_complete-bigfleet with the words typed.
func args(argv []string) []string {
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == "kubectl_complete-bigfleet" {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}
