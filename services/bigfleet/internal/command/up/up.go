// Package up is `bigfleet up`: everything in one process, with simulated clusters, in seconds.
package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	world "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// flags beside those that a world takes.
type flags struct {
	list, install       bool
	logs                string
	kubeconfig, context []string
	providers           []string
}

// NewAllInOne returns `bigfleet all-in-one`: everything for clusters that come from elsewhere (OPS-5.3).
func NewAllInOne(a *app.App) *cobra.Command {
	cmd := newUp(a, world.Config{NoClusters: true, Few: true})
	cmd.Use, cmd.Short, cmd.Example = "all-in-one", "Run `bigfleet up --clusters 0` with eight small machines and eight with a GPU", "  bigfleet all-in-one\n  bigfleet all-in-one --shard-listen 127.0.0.1:0 --data-dir ./state"
	cmd.Long = "Runs coordinator, shard and simulated cloud in one process, for operators that run elsewhere and dial the shard's port."
	return cmd
}

// New returns the verb.
func New(a *app.App) *cobra.Command { return newUp(a, world.Config{Clusters: world.DefaultClusters}) }

func newUp(a *app.App, c world.Config) *cobra.Command {
	var fl flags
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short: "Run a complete BigFleet in this process, with simulated clusters",
		Long: "Runs a complete BigFleet in one process. The shard, operators, pod controllers and provider are real and listen on real ports.\n" +
			"The clusters (an in-memory API server, a scheduler and kubelets) and the cloud are simulated.\n" +
			"Use --kubeconfig for real clusters, and --provider for a provider that runs elsewhere. Simulated clusters end with it.\n" +
			"Real clusters keep their Nodes, and --data-dir keeps the state: a later start with both continues.\n\n" +
			"A --script file has one step on each line, optionally after a delay such as +2s:\n\n  " + strings.ReplaceAll(world.Orders, "\n", "\n  "),
		Example: "  bigfleet up\n  bigfleet up --scenario burst\n  bigfleet up --clusters 1 --scenario gang --speed 4\n  bigfleet up --provider 127.0.0.1:9100\n" +
			"  bigfleet up --kubeconfig red.kubeconfig --kubeconfig blue.kubeconfig --install-crds",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.NoClusters = c.Clusters == 0
			if c.Speed == 0 || c.Shards == 0 { // to a Config that means the default; on a command line it means what it says
				return exit.Usagef("--speed and --shards must be more than 0")
			}
			if c.ProviderDelay == 0 {
				c.ProviderDelay = -1
			}
			return run(cmd.Context(), a, c, fl)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Clusters, "clusters", c.Clusters, "number of simulated clusters; 0 if operators run elsewhere")
	f.IntVar(&c.Shards, "shards", 1, "shards that share the simulated cloud, zone by zone; at most 3")
	f.StringVar(&c.Scenario, "scenario", "", "scenario to play, or a file as for --script: "+strings.Join(world.Names(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(world.Names(), cobra.ShellCompDirectiveDefault)) // fails only for an unknown flag
	f.StringVar(&c.Script, "script", "", "file with your own scenario; bigfleet up --help lists its steps")
	f.BoolVar(&fl.list, "list-scenarios", false, "list the scenarios")
	f.Float64Var(&c.Speed, "speed", 1, "divide the delays of machines and the scenario, and the holds of unneeded demand and machines, by this")
	f.Int64Var(&c.Seed, "seed", 1, "random seed of the simulated cloud")
	f.DurationVar(&c.ProviderDelay, "provider-delay", world.DefaultProviderDelay, "time to create a machine, and time to join it; 0 means none")
	f.StringVar(&c.ShardListen, "shard-listen", world.DefaultShardListen, "address of the shard's port; further shards use the next ports")
	f.StringVar(&c.ShardMetrics, "shard-metrics-addr", "", "address of the shard's metrics and health; 0 turns it off; default 127.0.0.1:8780, or a free port")
	f.StringVar(&c.ShardID, "shard-id", "", "id of the first shard (default shard-0)")
	f.StringVar(&c.CoordinatorListen, "coordinator-listen", world.DefaultCoordinator, "address of the coordinator's port")
	f.StringVar(&c.CoordinatorMetrics, "coordinator-metrics-addr", "", "address of the coordinator's metrics and health; 0 turns it off; default 127.0.0.1:8790, or a free port")
	f.StringVar(&c.CoordinatorID, "coordinator-id", "", "id of the coordinator (default coordinator-0)")
	f.StringVar(&c.RaftBind, "raft-bind", world.DefaultRaftBind, "address of the coordinator's Raft port")
	f.BoolVar(&c.NoCoordinator, "no-coordinator", false, "run without a coordinator: the shard works alone")
	f.StringVar(&c.ProviderListen, "provider-listen", world.DefaultProviderListen, "address of the provider's port")
	f.StringVar(&c.ControlListen, "control-listen", world.DefaultControlListen, "address of SubstrateControl, the API that changes the simulated cloud; 0 turns it off")
	f.StringVar(&c.DemoListen, "demo-listen", "", "address of the demo port, which bigfleet demo dials (default "+world.DefaultDemoListen+", or a free port)")
	f.StringVar(&c.ConsoleListen, "console", "", "address of the web UI; 0 turns it off (default 127.0.0.1:7700, or a free port)")
	f.StringSliceVar(&fl.providers, "provider", nil, "host:port or name=host:port of a provider to use instead of the simulated cloud; repeatable")
	f.StringSliceVar(&fl.kubeconfig, "kubeconfig", nil, "kubeconfig of a real cluster to use instead of simulated ones; repeatable") // shadows the global one, which takes a single file
	f.StringSliceVar(&fl.context, "contexts", nil, "contexts in the kubeconfigs; default: the current one of each")
	f.BoolVar(&fl.install, "install-crds", false, "install BigFleet's CRDs in the real clusters first")
	f.BoolVarP(&a.Yes, "yes", "y", false, "do not ask for confirmation before writing to real clusters")
	f.StringVar(&c.DataDir, "data-dir", "", "directory for state; default: a temporary directory, removed at exit")
	f.StringVar(&c.Kubeconfig, "write-kubeconfig", "", "write a kubeconfig for the simulated clusters to this file; default: a file in the state directory")
	f.StringVar(&fl.logs, "log-file", "", "write the logs of all components to this file; default: discard them")
	f.BoolVar(&c.Once, "once", false, "exit when the scenario is complete and nothing changes any more")
	return cmd
}

func run(ctx context.Context, a *app.App, c world.Config, fl flags) (err error) {
	if fl.list {
		for _, s := range world.Scenarios() {
			_, _ = fmt.Fprintf(a.Out, "%-10s %s\n", s.Name, s.About)
		}
		return nil
	}
	if c.Scenario != "" && !strings.ContainsAny(c.Scenario, "./\\") {
		if _, err := world.Find(c.Scenario); err != nil {
			return exit.Usagef("--scenario: %v", err)
		}
	}
	if c.Script != "" {
		if _, err := world.LoadScript(c.Script); err != nil {
			return exit.Usagef("--script: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	providers, err := shard.ParseProviders(fl.providers)
	if err != nil {
		return exit.Usagef("%s", strings.ReplaceAll(strings.ReplaceAll(err.Error(), "--provider-addr", "--provider"), "\n", "; "))
	}
	for _, p := range providers {
		c.Providers = append(c.Providers, world.Provider{Name: p.Name, Addr: p.Addr})
	}
	if c.Targets, err = world.Targets(fl.kubeconfig, fl.context); err != nil {
		return &exit.Error{Code: exit.Usage, Message: err.Error(), Err: err}
	}
	if err := c.Check(); err != nil {
		return exit.Usagef("up: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if err := prepare(ctx, a, c.Targets, fl.install); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // a terminal that closes leaves nothing behind either
	defer stop()
	c.Out, c.Paint, c.Colour, c.Size = a.Env.Paint(), a.Terminal, a.Colour(), a.Size
	if fl.logs != "" {
		f, err := os.OpenFile(fl.logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return exit.Usagef("--log-file: %v", err)
		}
		defer func() { _ = f.Close() }()
		c.Log = f
	}
	c.Sentence = history.Sentence
	c.Tries = banner(a, c)
	if more := at(c); more != "" {
		c.With = ", each with" + more
	}
	if err := world.Run(ctx, c); err != nil {
		return &exit.Error{Code: exit.CodeOf(err), Message: "up: " + err.Error(), Err: errors.Unwrap(err)}
	}
	return nil
}

// prepare asks before anything is written to a real cluster, and installs the definitions when a flag says so (OPS-5.4).
func prepare(ctx context.Context, a *app.App, targets []world.Target, install bool) error {
	if len(targets) == 0 {
		if install {
			return exit.Usagef("--install-crds is for real clusters: give --kubeconfig")
		}
		return nil
	}
	var names strings.Builder
	for _, t := range targets {
		_, _ = fmt.Fprintf(&names, "\n  %s (%s)", t.ID, t.REST.Host)
	}
	if err := a.Confirm("BigFleet will write CapacityRequests, UpcomingNodes, AvailableCapacities and Nodes, and evict Pods, in:%s", names.String()); err != nil {
		return err
	}
	for _, t := range targets {
		client, err := dynamic.NewForConfig(t.REST)
		if err != nil {
			return exit.Usagef("cluster %s: %v", t.ID, err)
		}
		changes, err := crds.Compare(ctx, client)
		if err != nil {
			return &exit.Error{Code: exit.Unreachable, Message: fmt.Sprintf("cluster %s: %v", t.ID, err), Hint: "Check the kubeconfig and that the API server runs", Err: err}
		}
		missing := crds.Stale(changes)
		if len(missing) > 0 && !install {
			return &exit.Error{Code: exit.Refused, Message: fmt.Sprintf("cluster %s lacks CRDs of this version: %s", t.ID, strings.Join(missing, ", ")), Hint: "Repeat with --install-crds, or run `bigfleet crds apply`"}
		}
		if len(missing) == 0 {
			continue
		}
		a.Notef("%s:", t.ID)
		crds.Print(a.Err, changes)
		if err := crds.Apply(ctx, client, changes); err != nil {
			return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("cluster %s: %v", t.ID, err), Err: err}
		}
	}
	return nil
}

// banner says what is simulated and what to try. On a terminal the picture shows the latter: it would paint over it.
func banner(a *app.App, c world.Config) (tries []string) {
	var models []string
	if len(c.Targets) == 0 && !c.NoClusters {
		models = append(models, "the clusters (in-memory API server, scheduler, kubelets)")
	}
	switch {
	case len(c.Providers) > 0:
	case len(c.Targets) > 0:
		models = append(models, "the machines (Node objects without a kubelet)")
	default:
		models = append(models, "the cloud")
	}
	if len(models) == 0 {
		models = []string{"nothing"}
	}
	a.Notef("Simulated: %s. Everything else is real, including every port.", strings.Join(models, " and "))
	if strings.HasSuffix(at(c), ":0") {
		a.Notef("The ports are printed when they are open; give %s to `bigfleet status`, `top` and the other commands.", strings.Fields(at(c))[0]+" ADDRESS")
		return nil
	}
	for _, try := range worthTrying(c) {
		switch {
		case strings.HasPrefix(try, "demo"):
			if c.DemoListen != "" && c.DemoListen != world.DefaultDemoListen {
				try += " --at " + c.DemoListen
			}
		case !a.Terminal: // there it is said once: the picture has few lines
			try += at(c)
		}
		tries = append(tries, try)
	}
	if a.Terminal {
		return tries
	}
	a.Notef("Try in another terminal:")
	for _, try := range tries {
		a.Notef("  bigfleet %s", try)
	}
	return nil
}

// worthTrying are commands that say something in this world: stories are for simulated clusters, and pools are the provider's.
func worthTrying(c world.Config) []string {
	out := []string{"status", "get needs", "top"}
	switch {
	case len(c.Targets) > 0:
		out = append(out, "explain cluster/"+c.Targets[0].ID, "history cluster/"+c.Targets[0].ID)
	case !c.NoClusters:
		out = append(out, "explain cluster/"+world.ClusterName(0), "demo critical")
	}
	if len(c.Providers) > 0 {
		return append(out, "get machines -o wide")
	}
	return append(out, "plan --stock-out m.8x@demo-1a")
}

// at is what the other terminal has to add to reach this process.
func at(c world.Config) string {
	switch {
	case c.NoCoordinator:
		return " --shard " + c.ShardListen
	case c.CoordinatorListen != world.DefaultCoordinator:
		return " --coordinator " + c.CoordinatorListen
	}
	return ""
}
