// Package kwok is the provider that makes real Node objects in real apiservers and lets kwok play their kubelets.
//
// Configure makes a Node in the apiserver of the target cluster, with the labels, taints and size of the machine; the
// machine is Configured once that Node is Ready. Drain deletes it, as the reset of a host
// would; it evicts no Pod. Create and Delete move only a
// virtual host, after the delays of the configuration. So everything above the machines is real: the scheduler places
// real Pods, disruption budgets count, an apiserver can be away.
//
// It owns the Nodes that carry its provider label and its store id, and nothing else in a cluster. It never runs a
// container, never touches a Node of another provider, and gives up no machine because an apiserver does not answer.
//
// It is written on sdk/provider like anybody's. Run serves it, NewCommand is the program. Start at Config, then backend.go.
// Clauses are cited as PROV-n.m of docs/spec/provider.md.
package kwok

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"github.com/spf13/cobra"
)

// Config is what Run needs.
type Config struct {
	Name      string              // name of the provider; required
	Clusters  nodeready.Clusters  // how to reach clusters; required
	Offerings []provider.Offering // the slots; required
	Delays    Delays
	// OrphanAge is how long a Node of ours must be unexplained before it is removed. 0 means 2 min.
	OrphanAge time.Duration
	Log       *slog.Logger      // required
	Options   []provider.Option // the rest: WithStateFile, WithListener, …
}

// Delays make the virtual hosts as slow as real ones. Jitter is the share, 0 to 1, by which each is drawn shorter or
// longer.
type Delays struct {
	Create    time.Duration `yaml:"create" doc:"Time to create a host."`
	Configure time.Duration `yaml:"configure" doc:"Time before the Node appears."`
	Drain     time.Duration `yaml:"drain" doc:"Time to reset a host after its Node is gone."`
	Delete    time.Duration `yaml:"delete" doc:"Time to return a host."`
	Jitter    float64       `yaml:"jitter" doc:"Random variation of each delay, as a share of it, 0 to 1."`
}

// Run serves the provider until ctx ends.
func Run(ctx context.Context, c Config) error {
	p, err := New(c)
	if err != nil {
		return &provider.StartError{Err: err}
	}
	return p.Run(ctx)
}

// New makes the provider without running it. Provider.Run ends its watches too.
func New(c Config) (*provider.Provider, error) {
	b, err := newBackend(c)
	if err != nil {
		return nil, err
	}
	options := append([]provider.Option{provider.WithOfferings(c.Offerings...), provider.WithLogger(c.Log)}, c.Options...)
	p, err := provider.New(c.Name, b, append(options, provider.WithReadiness(provider.NodesReadiness(b.nodes)))...)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return p, nil
}

// settings is kwok's own part of the configuration file (PROV-27.2).
type settings struct {
	Clusters      map[string]clusterSection `yaml:"clusters" doc:"Kubeconfigs of clusters, by cluster id."`
	KubeconfigDir string                    `yaml:"kubeconfig_dir" doc:"Directory with one kubeconfig per cluster, named after the cluster id."`
	Default       clusterSection            `yaml:"default" doc:"Kubeconfig of each cluster that is neither in clusters nor in kubeconfig_dir."`
	Delays        Delays                    `yaml:"delays" doc:"Delays of the virtual hosts. All are zero by default."`
}

type clusterSection struct {
	Kubeconfig string `yaml:"kubeconfig" doc:"Path of the kubeconfig."`
	Context    string `yaml:"context" doc:"Context of the kubeconfig. Empty takes its current context."`
}

// Validate implements the check of sdk/provider's configuration.
func (s *settings) Validate() error {
	var all []error
	for id, c := range s.Clusters {
		if c.Kubeconfig == "" {
			all = append(all, fmt.Errorf("clusters[%s]: kubeconfig is missing", id))
		}
	}
	return errors.Join(append(all, s.Delays.validate())...)
}

// named says why no machine could join a cluster. The fake backend needs none.
func (s settings) named() error {
	if len(s.Clusters) == 0 && s.KubeconfigDir == "" && s.Default.Kubeconfig == "" {
		return errors.New("no cluster is configured: give clusters, kubeconfig_dir (--kubeconfig-dir) or default (--kubeconfig)")
	}
	return nil
}

// unreadable lists the kubeconfigs that cannot be used now, each with the flag or key that names it. They may come later, so
// this is a warning and never an error (PROV-27.2).
func (s settings) unreadable() (all []error) {
	if s.Default.Kubeconfig != "" {
		if err := nodeready.Check(nodeready.Kubeconfig{File: s.Default.Kubeconfig, Context: s.Default.Context}); err != nil {
			all = append(all, fmt.Errorf("--kubeconfig (default.kubeconfig), for each cluster that is not configured elsewhere: %w", err))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.Clusters)) {
		if err := nodeready.Check(nodeready.Kubeconfig{File: s.Clusters[id].Kubeconfig, Context: s.Clusters[id].Context}); err != nil {
			all = append(all, fmt.Errorf("clusters[%s], for cluster %q: %w", id, id, err))
		}
	}
	if s.KubeconfigDir != "" {
		if _, err := os.ReadDir(s.KubeconfigDir); err != nil {
			all = append(all, fmt.Errorf("--kubeconfig-dir (kubeconfig_dir): %w", err))
		}
	}
	return all
}

func (d Delays) validate() error {
	for name, delay := range map[string]time.Duration{"create": d.Create, "configure": d.Configure, "drain": d.Drain, "delete": d.Delete} {
		if delay < 0 || delay > 24*time.Hour {
			return fmt.Errorf("delays.%[1]s (--%[1]s-delay) %[2]s: want 0 to 24h", name, delay)
		}
	}
	if !(d.Jitter >= 0 && d.Jitter <= 1) {
		return fmt.Errorf("delays.jitter %v: want 0 to 1", d.Jitter)
	}
	return nil
}

func (s settings) clusters() nodeready.Kubeconfigs {
	k := nodeready.Kubeconfigs{
		Clusters: map[string]nodeready.Kubeconfig{}, Dir: s.KubeconfigDir,
		Default: nodeready.Kubeconfig{File: s.Default.Kubeconfig, Context: s.Default.Context},
	}
	for id, c := range s.Clusters {
		k.Clusters[id] = nodeready.Kubeconfig{File: c.Kubeconfig, Context: c.Context}
	}
	return k
}

// NewCommand is the program bigfleet-provider-kwok.
func NewCommand() *cobra.Command { return program().Command() }

// Main runs the program and exits.
func Main() { provider.Main(program()) }

func program() provider.Program[settings] {
	return provider.Program[settings]{
		Name: "kwok", Short: "Provider that creates Node objects and lets kwok simulate their kubelets",
		Build: func(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
			if err := s.Config.named(); err != nil {
				return nil, nil, err
			}
			if a := s.Common.ControlAddr; a != "" && a != "0" { // PROV-24.4
				return nil, nil, errors.New("--control-addr (control_addr) is for the simulated cloud, and this one is real: leave it out, or set --use-fake-backend")
			}
			for _, err := range s.Config.unreadable() {
				s.Log.Warn("a kubeconfig cannot be used; Configure is rejected for its clusters until it can be used", "err", err)
			}
			b, err := newBackend(Config{
				Name: s.Common.Provider, Clusters: s.Config.clusters(), Delays: s.Config.Delays,
				OrphanAge: s.Common.Retention.Orphan, Log: s.Log,
			})
			if err != nil {
				return nil, nil, err
			}
			b.unreadable = s.Config.unreadable
			return b, []provider.Option{provider.WithReadiness(provider.NodesReadiness(b.nodes))}, nil
		},
		Fake:      substrate.Fake[settings](substrate.Config{}),
		Default:   func() []provider.Offering { return Catalogue(defaultSlots) },
		Catalogue: Catalogue,
		Flags: func(cmd *cobra.Command, s *settings) {
			f := cmd.Flags()
			f.StringVar(&s.KubeconfigDir, "kubeconfig-dir", "", "directory with one kubeconfig per cluster, named <id>, <id>.yaml or <id>.kubeconfig")
			f.StringVar(&s.Default.Kubeconfig, "kubeconfig", "", "kubeconfig of each cluster that is not configured elsewhere")
			f.StringVar(&s.Default.Context, "context", "", "context of --kubeconfig; empty takes its current context")
			f.DurationVar(&s.Delays.Create, "create-delay", 0, "time to create a host")
			f.DurationVar(&s.Delays.Configure, "configure-delay", 0, "time before the Node appears")
			f.DurationVar(&s.Delays.Drain, "drain-delay", 0, "time to reset a host after its Node is gone")
			f.DurationVar(&s.Delays.Delete, "delete-delay", 0, "time to return a host")
		},
	}
}

var _ io.Closer = (*backend)(nil)
