// Package hosts is the provider of Linux machines that exist already: bare metal, virtual machines of any kind, GPU racks.
//
// An inventory file names the hosts. On each runs an agent (package agent), which dials this provider and carries out two tasks:
// Configure makes the host a node with the boot data of the cluster's operator, Drain resets it and proves by looking that
// nothing of the cluster is left. A host starts in IDLE once its agent says that it is clean; Create and Delete do not exist.
//
// It never runs a command of others on a host, never offers a host that is not proven clean, and never gives up a node because
// an agent is silent. A reset that fails leaves the machine FAILED with the reason; the host is tried again or waits for a person.
//
// It is written on sdk/provider like anybody's. NewCommand is the program. Start at Config, then backend.go; agent_server.go is the
// agents' port. Clauses are cited as PROV-n.m of docs/spec/provider.md.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// Config is what the backend needs.
type Config struct {
	Name      string             // of the provider; required
	Inventory string             // file; required
	Clusters  nodeready.Clusters // how to reach clusters; nil: there is none, and no Node is looked at
	AgentAddr string             // where agents dial; required
	TLS       identity.Files     // of the agents' port; empty serves plaintext, to loopback alone
	Silence   time.Duration      // after which an agent counts as silent; 0 means 2 min
	// Secrets is the directory of the files that power controls name; empty: none can be used.
	Secrets string
	// PowerPrograms are command lines by name, for hosts whose power control is neither Redfish nor wake-on-LAN.
	PowerPrograms map[string][]string

	Log        *slog.Logger          // required
	Registerer prometheus.Registerer // nil: no metrics of its own

	wakeEvery time.Duration // 0 means wakeDefault
}

// settings is the provider's own part of the configuration file.
type settings struct {
	Inventory     string        `yaml:"inventory" doc:"File with the list of hosts. Required. Reloaded when it changes."`
	AgentAddr     string        `yaml:"agent_addr" doc:"Listen address for the agents of the hosts."`
	AgentTLS      agentTLS      `yaml:"agent_tls" doc:"mTLS of the agents' port. Defaults to the files of the RPC port."`
	KubeconfigDir string        `yaml:"kubeconfig_dir" doc:"Directory with one kubeconfig per cluster, named <id>, <id>.yaml or <id>.kubeconfig."`
	Silence       time.Duration `yaml:"silence" doc:"How long an agent may go without a report before it counts as silent. An idle host whose agent is silent is not offered."`
	Secrets       string        `yaml:"secrets_dir" doc:"Directory of the password files that the inventory's power controls name."`
	// No flag: what the provider may run is the file's alone.
	PowerPrograms map[string][]string `yaml:"power_programs" doc:"Command lines, by name, that switch hosts on, such as ipmitool's. {address}, {user} and {password_file} are replaced from the inventory, and status or on is appended."`
}

type agentTLS struct {
	Cert string `yaml:"cert" doc:"Path of the certificate (PEM)."`
	Key  string `yaml:"key" doc:"Path of the private key (PEM)."`
	CA   string `yaml:"ca" doc:"Path of the CA bundle (PEM) that verifies agents."`
}

// Validate is called by sdk/provider.
func (s *settings) Validate() error {
	if s.Silence < time.Second {
		return fmt.Errorf("silence: %v is too short; the minimum is 1s", s.Silence)
	}
	if s.Silence > silenceMax {
		return fmt.Errorf("silence: %v is too long; the maximum is %v, because a dead host is offered until then", s.Silence, silenceMax)
	}
	for name, words := range s.PowerPrograms {
		if len(words) == 0 || words[0] == "" || strings.Contains(words[0], "{") {
			return fmt.Errorf("power_programs[%s]: the first word must be a program, and not one that the inventory chooses", name)
		}
	}
	return nil
}

const (
	silenceDefault = 2 * time.Minute
	silenceMax     = 24 * time.Hour
)

// NewCommand is the program bigfleet-provider-hosts.
func NewCommand() *cobra.Command { return program().Command() }

// Main runs the program and exits.
func Main() { provider.Main(program()) }

func program() provider.Program[settings] {
	return provider.Program[settings]{
		Name: "hosts", Short: "Provider for existing Linux hosts, each with an agent",
		Config:  settings{AgentAddr: ":9010", Silence: silenceDefault},
		Build:   build,
		Fake:    buildFake,
		Default: func() []provider.Offering { return nil }, // hosts are described, not offered as slots
		Flags: func(cmd *cobra.Command, s *settings) {
			f := cmd.Flags()
			f.StringVar(&s.Inventory, "inventory", "", "file with the list of hosts; reloaded when it changes")
			f.StringVar(&s.AgentAddr, "agent-addr", s.AgentAddr, "listen address for the agents of the hosts")
			f.StringVar(&s.KubeconfigDir, "kubeconfig-dir", "", "directory with one kubeconfig per cluster, named <id>, <id>.yaml or <id>.kubeconfig")
			f.StringVar(&s.Secrets, "secrets-dir", "", "directory of the password files that the inventory's power controls name")
			f.DurationVar(&s.Silence, "silence", s.Silence, "how long an agent may go without a report before it counts as silent")
		},
	}
}

func build(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	c := s.Config
	switch {
	case c.Inventory == "":
		return nil, nil, errors.New("--inventory (inventory) is missing: the file with the list of hosts")
	case c.KubeconfigDir == "":
		return nil, nil, errors.New("--kubeconfig-dir (kubeconfig_dir) is missing: nodes are watched and removed with the kubeconfigs in it")
	case s.Common.ControlAddr != "" && s.Common.ControlAddr != "0": // PROV-24.4
		return nil, nil, errors.New("--control-addr (control_addr) is for the simulated cloud, and this one is real: leave it out, or set --use-fake-backend")
	case len(s.Offerings) > 0:
		return nil, nil, errors.New("offerings are for clouds; list hosts in the inventory")
	}
	b, err := newBackend(Config{
		Name: s.Common.Provider, Inventory: c.Inventory, Clusters: nodeready.Kubeconfigs{Dir: c.KubeconfigDir}, AgentAddr: c.AgentAddr,
		TLS: agentFiles(c.AgentTLS, s.Common.Files()), Silence: c.Silence, Secrets: c.Secrets,
		PowerPrograms: c.PowerPrograms, Log: s.Log, Registerer: s.Registerer,
	})
	if err != nil {
		return nil, nil, err
	}
	return b, []provider.Option{provider.WithReadiness(provider.NodesReadiness(b.nodes))}, nil
}

func agentFiles(own agentTLS, common identity.Files) identity.Files {
	if own == (agentTLS{}) {
		return common
	}
	return identity.Files{Cert: own.Cert, Key: own.Key, CA: own.CA}
}
