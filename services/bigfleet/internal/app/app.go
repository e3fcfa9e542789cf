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
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/contexts"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// App carries one invocation. Its fields are set before a verb runs.
type App struct {
	env.Env
	Format output.Format
	Watch  bool
	Yes    bool
	Reason string
	DryRun bool

	flags     flags
	given     *pflag.FlagSet
	fleet     *fleet.Fleet
	noContext error // why the current context cannot be used; it stops only what would use it
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
	kubeconfig  string
	kubeContext string
	context     string
	viaKube     string
	group       string // what the context pins
}

// New makes the App of one invocation.
func New(e env.Env) *App { return &App{Env: e} }

// Bind adds the global flags.
func (a *App) Bind(f *pflag.FlagSet) {
	a.given = f
	f.StringVarP(&a.flags.format, "output", "o", string(output.Table), "output format: "+strings.Join(output.Formats(), "|"))
	f.StringSliceVar(&a.flags.coordinator, "coordinator", []string{fleet.CoordinatorDefault}, "coordinator addresses, host:port; repeatable")
	f.StringVar(&a.flags.shard, "shard", "", "one shard, by id or host:port; default: every shard that the coordinator lists")
	f.DurationVar(&a.flags.timeout, "timeout", fleet.TimeoutDefault, "time limit of one request; requests that follow changes have none")
	f.StringVar(&a.flags.context, "context", "", "`NAME` of a context from `config view`; default: the current one")
	f.StringVar(&a.flags.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster to read Pods and CRDs from; default: kubectl's")
	f.StringVar(&a.flags.kubeContext, "kube-context", "", "context in the kubeconfig")
	f.StringVar(&a.flags.viaKube, "via-kube", "", "reach coordinator and shards through the API server of the management cluster: `CONTEXT[/NAMESPACE]`")
	f.Lookup("via-kube").NoOptDefVal = viaCurrent
	f.StringVar(&a.flags.cert, "tls-cert", "", "client certificate file")
	f.StringVar(&a.flags.key, "tls-key", "", "client key file")
	f.StringVar(&a.flags.ca, "tls-ca", "", "CA file that verifies server certificates")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "show the underlying cause of an error")
}

// Verbose says whether causes are shown.
func (a *App) Verbose() bool { return a.flags.verbose }

// Refused takes the format for an error of a command line that never came to Check.
func (a *App) Refused() {
	if f, err := output.Parse(a.flags.format); err == nil {
		a.Format = f
	}
}

// Check validates the global flags before a verb runs, and takes from the current context what no flag says.
func (a *App) Check() error {
	var err error
	if a.Format, err = output.Parse(a.flags.format); err != nil {
		return err
	}
	a.Out = a.on(a.Out)
	if a.flags.timeout <= 0 {
		return exit.Usagef("--timeout %v: it must be more than 0", a.flags.timeout)
	}
	if err := a.takeContext(); err != nil {
		if a.flags.context != "" {
			return err
		}
		a.noContext = err // roles, `config` and what reads files go on without
	}
	return nil
}

func (a *App) takeContext() error {
	path, err := contexts.Path(a.Getenv)
	if err != nil {
		if a.flags.context != "" {
			return exit.Usagef("--context: %v", err)
		}
		return nil
	}
	f, err := contexts.Load(path)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Reason: "contexts", Message: fmt.Sprintf("contexts: %v", err), Hint: contexts.Mend, Err: err}
	}
	name := a.flags.context
	if name == "" {
		name = f.Current
	}
	if name == "" {
		return nil
	}
	c, ok := f.Contexts[name]
	if !ok && a.flags.context == "" {
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("the current context %q is not in %s", name, path), Hint: "`bigfleet config use NAME` chooses another; `bigfleet config view` lists them"}
	}
	if !ok {
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no context %q", name), Hint: "`bigfleet config view` lists them"}
	}
	// An address on the command line replaces both of the context: half of each would be a third fleet. The id of a shard is no
	// address: it is one of this fleet's.
	shard, id := a.flags.shard, a.given.Changed("shard") && !strings.Contains(a.flags.shard, ":")
	if !a.given.Changed("coordinator") && (id || !a.given.Changed("shard")) {
		if len(c.Coordinator) > 0 {
			a.flags.coordinator = c.Coordinator
		}
		a.flags.group = c.ClusterUUID
		if a.flags.shard = c.Shard; id {
			a.flags.shard = shard
		}
	}
	for flag, to := range a.texts() {
		if v := *textOf(&c, flag); v != "" && !a.given.Changed(flag) {
			*to = v
		}
	}
	return nil
}

// texts are the flags that a context may hold, besides addresses.
func (a *App) texts() map[string]*string {
	return map[string]*string{
		"tls-cert": &a.flags.cert, "tls-key": &a.flags.key, "tls-ca": &a.flags.ca, "kubeconfig": &a.flags.kubeconfig, "kube-context": &a.flags.kubeContext,
	}
}

func textOf(c *contexts.Context, flag string) *string {
	switch flag {
	case "tls-cert":
		return &c.TLSCert
	case "tls-key":
		return &c.TLSKey
	case "tls-ca":
		return &c.TLSCA
	case "kubeconfig":
		return &c.Kubeconfig
	}
	return &c.KubeContext
}

// Verb is what a command is called under the root, for its errors.
func Verb(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
}

// Over is a context with what this command line says in place of what it said.
func (a *App) Over(c contexts.Context) contexts.Context {
	if a.given.Changed("coordinator") {
		c.Coordinator = a.flags.coordinator
	}
	if a.given.Changed("shard") {
		c.Shard = a.flags.shard
	}
	for flag, from := range a.texts() {
		if a.given.Changed(flag) {
			*textOf(&c, flag) = *from
		}
	}
	return c
}

// Fleet opens the connections that the flags describe.
func (a *App) Fleet() (*fleet.Fleet, error) {
	if a.fleet != nil {
		return a.fleet, nil
	}
	if a.noContext != nil {
		return nil, a.noContext
	}
	cfg := fleet.Config{Coordinator: a.flags.coordinator, Group: a.flags.group, Shard: a.flags.shard, Timeout: a.flags.timeout, Dial: a.Dial}
	if !a.Watch { // which would say it again each second
		cfg.Slow = func(what string) { a.Notef("%s", what) }
	}
	if files := a.TLSFiles(); files != (identity.Files{}) {
		source, err := identity.Load(files, identity.Options{})
		if err != nil {
			return nil, exit.Usagef("TLS: %v", err)
		}
		cfg.Identity = source
	}
	if a.flags.viaKube != "" {
		if err := a.throughKube(&cfg); err != nil {
			return nil, err
		}
	}
	a.fleet = fleet.New(cfg)
	return a.fleet, nil
}

// Group asks the coordinator that a context leads to which fleet it is of; what the context pins does not count.
func (a *App) Group(ctx context.Context, c contexts.Context) (string, error) {
	a.flags.coordinator, a.flags.shard, a.flags.group, a.noContext = c.Coordinator, "", "", nil
	for flag, to := range a.texts() {
		*to = *textOf(&c, flag)
	}
	f, err := a.Fleet()
	if err != nil {
		return "", err
	}
	return f.Group(ctx)
}

// TLSFiles are what the TLS flags name.
func (a *App) TLSFiles() identity.Files {
	return identity.Files{Cert: a.flags.cert, Key: a.flags.key, CA: a.flags.ca}
}

// Waits says on stderr what is being waited for, once, after a second, unless done was called before (OPS-4.1).
func (a *App) Waits(message string) (done func()) {
	return fleet.Waits(func(s string) { a.Notef("%s", s) }, func() string { return message })
}

// ShardID is the shard that --shard names by id; "" when it names none, or an address.
func (a *App) ShardID() string {
	if strings.Contains(a.flags.shard, ":") {
		return ""
	}
	return a.flags.shard
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

// withoutReason are the verbs that add or set something: they take --reason, and every other verb that changes something requires it.
// This is the whole rule (OPS-4.8).
var withoutReason = []string{"apply", "assign", "bind", "move", "readmit", "set", "transfer-leader", "undrain"}

// NeedsReason says whether a verb that changes something requires --reason.
func NeedsReason(verb string) bool { return !slices.Contains(withoutReason, verb) }

// Mutates adds the flags of OPS-4.8 to a verb that changes something.
func (a *App) Mutates(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.Yes, "yes", "y", false, "skip the confirmation")
	c.Flags().BoolVar(&a.DryRun, "dry-run", false, "validate on the server without changing anything")
	if !NeedsReason(c.Name()) {
		c.Flags().StringVar(&a.Reason, "reason", "", "reason for the change; kept in the records that bigfleet history and bigfleet get audit show")
		return c
	}
	c.Flags().StringVar(&a.Reason, "reason", "", "reason for the change; kept in the records that bigfleet history and bigfleet get audit show")
	_ = c.MarkFlagRequired("reason")                // fails only for an unknown flag
	c.PreRun = func(c *cobra.Command, _ []string) { // cobra asks for required flags after it
		if a.DryRun && !c.Flags().Changed("reason") {
			_ = c.Flags().Set("reason", "dry run")
		}
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
		return &exit.Error{Code: exit.Declined, Reason: "confirmation", Message: "this command changes something and cannot ask for confirmation without a terminal", Hint: "Repeat it with --yes"}
	}
	_, _ = fmt.Fprint(a.Err, "Continue? [y/N] ")
	var answer string
	_, _ = fmt.Fscanln(a.In, &answer)
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil
	}
	return &exit.Error{Code: exit.Declined, Message: "nothing was changed"}
}
