// Package app is what every verb shares: the global flags of OPS-4.4, the connections they lead to, and repetition for --watch.
package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// watchEvery is how often --watch asks again.
const watchEvery = time.Second

// App carries one invocation. Its fields are set before a verb runs.
type App struct {
	env.Env
	Format output.Format
	Watch  bool
	Yes    bool
	Reason string
	DryRun bool

	flags flags
	fleet *fleet.Fleet
}

type flags struct {
	format      string
	coordinator []string
	shard       string
	timeout     time.Duration
	cert        string
	key         string
	ca          string
	verbose     bool
}

// New makes the App of one invocation.
func New(e env.Env) *App { return &App{Env: e} }

// Bind adds the global flags.
func (a *App) Bind(f *pflag.FlagSet) {
	f.StringVarP(&a.flags.format, "output", "o", string(output.Table), "output format: "+strings.Join(output.Formats(), "|"))
	f.StringSliceVar(&a.flags.coordinator, "coordinator", []string{fleet.CoordinatorDefault}, "coordinator addresses, host:port; repeatable")
	f.StringVar(&a.flags.shard, "shard", "", "one shard, by id or host:port; default every shard the coordinator lists")
	f.DurationVar(&a.flags.timeout, "timeout", fleet.TimeoutDefault, "bound of one call; streams have none")
	f.StringVar(&a.flags.cert, "tls-cert", "", "client certificate file")
	f.StringVar(&a.flags.key, "tls-key", "", "client key file")
	f.StringVar(&a.flags.ca, "tls-ca", "", "CA file that servers' certificates are checked against")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "show the cause behind an error")
}

// Verbose says whether causes are shown.
func (a *App) Verbose() bool { return a.flags.verbose }

// Check validates the global flags before a verb runs.
func (a *App) Check() error {
	var err error
	a.Format, err = output.Parse(a.flags.format)
	return err
}

// Fleet opens the connections that the flags describe.
func (a *App) Fleet() (*fleet.Fleet, error) {
	if a.fleet != nil {
		return a.fleet, nil
	}
	cfg := fleet.Config{Coordinator: a.flags.coordinator, Shard: a.flags.shard, Timeout: a.flags.timeout}
	if files := a.TLSFiles(); files != (identity.Files{}) {
		source, err := identity.Load(files, identity.Options{})
		if err != nil {
			return nil, exit.Usagef("TLS: %v", err)
		}
		cfg.Identity = source
	}
	a.fleet = fleet.New(cfg)
	return a.fleet, nil
}

// TLSFiles are what the TLS flags name.
func (a *App) TLSFiles() identity.Files {
	return identity.Files{Cert: a.flags.cert, Key: a.flags.key, CA: a.flags.ca}
}

// Timeout is the bound of one call.
func (a *App) Timeout() time.Duration { return a.flags.timeout }

// Shards finds the shards to ask.
func (a *App) Shards(ctx context.Context) (*fleet.Fleet, []fleet.Shard, error) {
	f, err := a.Fleet()
	if err != nil {
		return nil, nil, err
	}
	shards, err := f.Shards(ctx)
	return f, shards, err
}

// Close ends the connections.
func (a *App) Close() {
	if a.fleet != nil {
		a.fleet.Close()
	}
}

// Read runs a verb that only reads, again and again with --watch (OPS-4.3). show prints one answer.
func (a *App) Read(ctx context.Context, show func(context.Context) error) error {
	if !a.Watch {
		return show(ctx)
	}
	for {
		if a.Terminal && a.Format.ForPeople() {
			_, _ = fmt.Fprint(a.Out, "\x1b[H\x1b[2J") // home and clear, so that a table repaints
		}
		if err := show(ctx); err != nil && ctx.Err() == nil {
			a.Notef("%v", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// Watchable adds --watch to a verb.
func (a *App) Watchable(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.Watch, "watch", "w", false, "repeat every second")
	return c
}

// Mutates adds the flags of OPS-4.8 to a verb that changes something.
func (a *App) Mutates(c *cobra.Command, reasonRequired bool) *cobra.Command {
	c.Flags().BoolVarP(&a.Yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&a.Reason, "reason", "", "why; recorded with the order")
	c.Flags().BoolVar(&a.DryRun, "dry-run", false, "check everything on the server and change nothing")
	if reasonRequired {
		_ = c.MarkFlagRequired("reason") // fails only for an unknown flag
	}
	return c
}

// Confirm says what will happen and asks, unless --yes. Without a terminal it refuses (OPS-4.8).
func (a *App) Confirm(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	a.Notef("%s", what)
	if a.Yes || a.DryRun {
		return nil
	}
	if !a.Asks {
		return &exit.Error{Code: exit.Usage, Reason: "confirmation", Say: "this changes something and nobody can be asked", Hint: "Repeat with --yes"}
	}
	_, _ = fmt.Fprint(a.Err, "Go on? [y/N] ")
	var answer string
	_, _ = fmt.Fscanln(a.In, &answer)
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil
	}
	return &exit.Error{Code: exit.Declined, Say: "nothing was changed"}
}
