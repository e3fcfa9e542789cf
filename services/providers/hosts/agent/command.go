package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// file is the agent's configuration file.
type file struct {
	Host       string   `yaml:"host"`     // name in the inventory; empty: the machine's host name
	Provider   string   `yaml:"provider"` // URL of the provider's agent port
	TLS        tlsFiles `yaml:"tls"`
	StateDir   string   `yaml:"state_dir"`
	Services   string   `yaml:"services"` // systemd or direct
	Kubelet    string   `yaml:"kubelet"`
	Args       []string `yaml:"kubelet_args"`
	Containerd string   `yaml:"containerd"`
	RuntimeArg []string `yaml:"containerd_args"`
	Ctr        string   `yaml:"ctr"`
	CNI        string   `yaml:"cni_dir"`
	Plugins    string   `yaml:"cni_plugin_dir"`
	Images     string   `yaml:"images_dir"`
	CgroupRoot string   `yaml:"cgroup_root"`
}

type tlsFiles struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

func defaults() file {
	return file{
		StateDir: "/var/lib/bigfleet-hostagent", Services: "systemd", Kubelet: "/usr/bin/kubelet", Containerd: "/usr/bin/containerd", Ctr: "ctr",
	}
}

func read(name string) (file, error) {
	f := defaults()
	text, err := os.ReadFile(name)
	if err != nil {
		return f, fmt.Errorf("configuration: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("configuration %s: %w", name, err)
	}
	if f.Host == "" {
		if f.Host, err = os.Hostname(); err != nil {
			return f, err
		}
	}
	secure := f.TLS != (tlsFiles{})
	switch {
	case !strings.HasPrefix(f.Provider, "https://") && !strings.HasPrefix(f.Provider, "http://"):
		err = fmt.Errorf("provider %q is not a URL, such as https://provider-hosts:9010", f.Provider)
	case secure != strings.HasPrefix(f.Provider, "https://"):
		err = errors.New("tls and an https:// provider go together: give both or none")
	case f.Services != "systemd" && f.Services != "direct":
		err = fmt.Errorf("services %q is neither systemd nor direct", f.Services)
	}
	if err != nil {
		return f, fmt.Errorf("configuration %s: %w", name, err)
	}
	return f, nil
}

// agent makes the Agent of a configuration.
func (f file) agent(log *slog.Logger) (*Agent, error) {
	protocols := new(http.Protocols)
	transport := &http.Transport{Protocols: protocols, ResponseHeaderTimeout: time.Minute}
	if f.TLS != (tlsFiles{}) {
		source, err := identity.Load(identity.Files{Cert: f.TLS.Cert, Key: f.TLS.Key, CA: f.TLS.CA}, identity.Options{})
		if err != nil {
			return nil, err
		}
		protocols.SetHTTP1(true)
		transport.DialTLSContext = source.Dialer(nil, nil, "http/1.1")
	} else {
		protocols.SetHTTP1(true)
	}
	var services Services = Systemd{Kubelet: f.Kubelet}
	if f.Services == "direct" {
		services = Direct{Programs: map[Service]string{Kubelet: f.Kubelet, Runtime: f.Containerd}, Args: map[Service][]string{Runtime: f.RuntimeArg}}
	}
	return New(Config{
		Name: f.Host, URL: f.Provider, Client: &http.Client{Transport: transport}, StateDir: f.StateDir, Version: version(), Log: log,
		Host: &Linux{
			StateDir: f.StateDir, Services: services, Kubelet: f.Args, CNI: f.CNI, Images: f.Images, Ctr: f.Ctr, CgroupRoot: f.CgroupRoot,
			PluginDir: f.Plugins, Log: log,
		},
	})
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// NewCommand is the program bigfleet-hostagent.
func NewCommand() *cobra.Command {
	var config string
	log := func(cmd *cobra.Command) *slog.Logger { return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)) }
	root := &cobra.Command{
		Use: "bigfleet-hostagent", Short: "Makes this machine a node of a cluster and resets it, as its provider instructs", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true, Version: version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := read(config)
			if err != nil {
				return err
			}
			a, err := f.agent(log(cmd))
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	root.PersistentFlags().StringVar(&config, "config", "/etc/bigfleet/hostagent.yaml", "configuration file (YAML)")
	look := &cobra.Command{
		Use: "look", Short: "List what a cluster left on this machine; exit code 1 when there is something", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := read(config)
			if err != nil {
				return err
			}
			a, err := f.agent(log(cmd))
			if err != nil {
				return err
			}
			left, err := a.host.Look(cmd.Context())
			if err != nil {
				return err
			}
			for _, one := range left {
				fmt.Fprintln(cmd.OutOrStdout(), one)
			}
			if len(left) > 0 {
				return fmt.Errorf("a cluster left %d items on this machine", len(left))
			}
			fmt.Fprintln(cmd.OutOrStdout(), "no cluster left anything on this machine")
			return nil
		},
	}
	var grace time.Duration
	reset := &cobra.Command{
		Use: "reset", Short: "Reset this machine now; stop the agent first", Args: cobra.NoArgs,
		Long: "Ends kubelet, containers and runtime, and removes keys, certificates, images, volumes and logs of the cluster. Stop the agent first. " +
			"All Pods of this machine end.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := read(config)
			if err != nil {
				return err
			}
			name := f.StateDir + "/journal.json"
			if _, err := (journal{name}).load(); err != nil { // a damaged one is what this command is for
				if err := os.Rename(name, name+".damaged"); err != nil {
					return err
				}
			}
			a, err := f.agent(log(cmd))
			if err != nil {
				return err
			}
			return a.ResetNow(cmd.Context(), grace)
		},
	}
	reset.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long containers may take to stop")
	root.AddCommand(look, reset)
	return root
}

// Main runs the program and exits: 0 after a stop on request, 1 otherwise.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bigfleet-hostagent: %v\n", err)
		os.Exit(1)
	}
}
