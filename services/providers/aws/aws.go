// Package aws is the provider whose machines are EC2 instances.
//
// Create launches one instance with generic user data and tags, in one call, with the operation id as its client token. Configure
// hands the boot data to the running instance through AWS Systems Manager, so that it is in no user data and no tag. Drain replaces
// the root volume by a new one from the image, so that nothing of a cluster reaches the next one. Delete terminates.
//
// It owns the instances that carry its provider tag, and no others. It never evicts a Pod (PROV-11.13), and gives up no machine
// because AWS does not answer.
//
// It is written on sdk/provider like anybody's. NewCommand is the program. Start at backend.go; launch.go launches, look.go reads what
// there is, boot.go configures and resets, prices.go quotes, notices.go hears interruptions, model.go is the EC2 of the tests, and
// http_test.go puts it on a network. Clauses are cited as PROV-n.m of docs/spec/provider.md.
package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"github.com/spf13/cobra"
)

// settings is the provider's own part of the configuration file.
type settings struct {
	Region         string              `yaml:"region" doc:"AWS region, such as eu-west-1. Empty takes the region of the environment."`
	LaunchTemplate launchTemplate      `yaml:"launch_template" doc:"Launch template of all instances. It sets the image, the instance profile, the network and the generic user data."`
	Subnets        map[string][]string `yaml:"subnets" doc:"Subnet ids by availability zone. Empty takes the default subnet of each zone."`
	Tags           map[string]string   `yaml:"tags" doc:"Additional tags of instances and volumes."`
	Idle           string              `yaml:"idle" doc:"State of an idle on-demand or reserved instance: running or stopped. A stopped instance costs only its disk."`
	Reservations   map[string]string   `yaml:"reservations" doc:"Capacity reservation id by offering name, for offerings of capacity type reserved. Reserved offerings that are not listed are taken to be paid for by a Savings Plan."`
	Prices         map[string]float64  `yaml:"price_overrides" doc:"Price in USD per hour by offering name, instead of the price that AWS quotes."`
	Interruption   map[string]float64  `yaml:"interruption_per_month" doc:"Share of spot instances that are interrupted in a month (0 to 1), by instance type, as the Spot advisor publishes it. Types that are not listed keep the offering's interruption_probability."`
	QueueURL       string              `yaml:"queue_url" doc:"URL of the SQS queue that EventBridge sends EC2 events to. Without it, the provider learns of scheduled events only."`
	Rebalance      float64             `yaml:"rebalance_probability" doc:"Interruption probability per hour of an instance with a rebalance recommendation; 0 ignores recommendations."`
	KubeconfigDir  string              `yaml:"kubeconfig_dir" doc:"Directory with one kubeconfig per cluster, named <id>, <id>.yaml or <id>.kubeconfig."`
}

type launchTemplate struct {
	Name    string `yaml:"name" doc:"Name of the launch template. Give either name or id."`
	ID      string `yaml:"id" doc:"Id of the launch template, lt-..."`
	Version string `yaml:"version" doc:"Version of the launch template. Empty means $Default."`
}

const (
	idleRunning = "running"
	idleStopped = "stopped"
)

// Validate implements the check of sdk/provider's configuration. It says everything that is wrong.
func (s *settings) Validate() error {
	var all []error
	if s.Idle != idleRunning && s.Idle != idleStopped {
		all = append(all, fmt.Errorf("idle: %q is neither %s nor %s", s.Idle, idleRunning, idleStopped))
	}
	if s.LaunchTemplate.Name != "" && s.LaunchTemplate.ID != "" {
		all = append(all, errors.New("launch_template: give name or id, not both"))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Prices)) {
		if p := s.Prices[key]; !(p >= 0 && p < 1e6) {
			all = append(all, fmt.Errorf("price_overrides[%s]: %v is not a price in USD per hour", key, p))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Interruption)) {
		if p := s.Interruption[key]; !(p > 0 && p < 1) {
			all = append(all, fmt.Errorf("interruption_per_month[%s]: %v is not between 0 and 1", key, p))
		}
	}
	if !(s.Rebalance >= 0 && s.Rebalance <= 1) {
		all = append(all, fmt.Errorf("rebalance_probability: %v is not 0 to 1", s.Rebalance))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		if slices.Contains(ownTags, key) || len(key) > tagKeyMax || len(s.Tags[key]) > tagValueMax {
			all = append(all, fmt.Errorf("tags[%s]: the name is the provider's own, or name or value is too long", key))
		}
	}
	return errors.Join(all...)
}

// complete says what the offerings in force need and the configuration does not have.
func (s *settings) complete(offerings []provider.Offering) error {
	var all []error
	if s.LaunchTemplate.Name == "" && s.LaunchTemplate.ID == "" {
		all = append(all, errors.New("launch_template is missing: name the template of the instances (name or id)"))
	}
	if s.KubeconfigDir == "" {
		all = append(all, errors.New("--kubeconfig-dir (kubeconfig_dir) is missing: nodes are watched and removed with the kubeconfigs in it"))
	}
	reserved := map[string]bool{}
	for _, o := range offerings {
		reserved[o.Key()] = o.CapacityType == provider.Reserved
		if o.CapacityType == provider.BareMetal {
			all = append(all, fmt.Errorf("offering %q: an instance can be returned, so its capacity type is on_demand, spot or reserved, also for metal types", o.Key()))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Reservations)) {
		if !reserved[key] {
			all = append(all, fmt.Errorf("reservations[%s]: there is no offering of that name with capacity type reserved", key))
		}
	}
	return errors.Join(all...)
}

// Budgets of calls, below AWS's default request limits of an account and region: they leave room for others in the account.
// calls in the configuration file replaces them by name.
var budgets = map[string]provider.CallLimit{
	"ec2.CreateFleet":                 {Parallel: 32, PerSecond: 2, Burst: 50},
	"ec2.RunInstances":                {Parallel: 16, PerSecond: 1, Burst: 5},
	"ec2.StartInstances":              {Parallel: 16, PerSecond: 1, Burst: 50},
	"ec2.StopInstances":               {Parallel: 16, PerSecond: 1, Burst: 50},
	"ec2.TerminateInstances":          {Parallel: 16, PerSecond: 2, Burst: 50},
	"ec2.CreateReplaceRootVolumeTask": {Parallel: 16, PerSecond: 1, Burst: 20},
	"ec2.CreateTags":                  {Parallel: 16, PerSecond: 5, Burst: 50},
	"ec2.DescribeInstances":           {Parallel: 8, PerSecond: 5, Burst: 50},
	"ssm.SendCommand":                 {Parallel: 16, PerSecond: 5, Burst: 20},
	"ssm.GetCommandInvocation":        {Parallel: 32, PerSecond: 20, Burst: 40},
	"pricing.GetProducts":             {Parallel: 2, PerSecond: 2, Burst: 5},
}

// Time limits of transitions (PROV-28.12). Most of a Drain is the replacement of the root volume and the reboot.
var timeouts = provider.Timeouts{Create: 10 * time.Minute, Configure: 10 * time.Minute, Delete: 15 * time.Minute, DrainExtra: 20 * time.Minute}

// NewCommand is the program bigfleet-provider-aws.
func NewCommand() *cobra.Command { return program().Command() }

// Main runs the program and exits.
func Main() { provider.Main(program()) }

func program() provider.Program[settings] {
	return provider.Program[settings]{
		Name: "aws", Short: "Provider whose machines are EC2 instances",
		Config: settings{Idle: idleRunning, Rebalance: 0.5},
		Build:  build,
		Fake:   buildFake,
		Flags: func(cmd *cobra.Command, s *settings) {
			f := cmd.Flags()
			f.StringVar(&s.Region, "region", "", "AWS region, such as eu-west-1; empty takes the region of the environment")
			f.StringVar(&s.KubeconfigDir, "kubeconfig-dir", "", "directory with one kubeconfig per cluster, named <id>, <id>.yaml or <id>.kubeconfig")
			f.StringVar(&s.QueueURL, "queue-url", "", "URL of the SQS queue that EventBridge sends EC2 events to")
			cmd.AddCommand(offeringsCommand())
		},
	}
}

func build(ctx context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	if a := s.Common.ControlAddr; a != "" && a != "0" { // PROV-24.4
		return nil, nil, errors.New("--control-addr (control_addr) is for the simulated cloud, and this one is real: leave it out, or set --use-fake-backend")
	}
	if err := s.Config.complete(s.Offerings); err != nil {
		return nil, nil, err
	}
	api, err := dial(ctx, s.Config.Region)
	if err != nil {
		return nil, nil, err
	}
	s.Config.Region = api.region
	nodes, err := nodeready.NewSource(nodeready.Config{Clusters: nodeready.Kubeconfigs{Dir: s.Config.KubeconfigDir}, Log: s.Log})
	if err != nil {
		return nil, nil, err
	}
	b, err := newBackend(Config{Name: s.Common.Provider, settings: s.Config, cloud: api, nodes: nodes, Offerings: s.Offerings, Log: s.Log, Registerer: s.Registerer})
	if err != nil {
		nodes.Close()
		return nil, nil, err
	}
	return b, append(options(s.Common), provider.WithReadiness(provider.NodesReadiness(nodes))), nil
}

// options are the limits that fit AWS, where the configuration has no own.
func options(c provider.Common) []provider.Option {
	limits := maps.Clone(budgets)
	for name, own := range c.Calls {
		limits[name] = provider.CallLimit(own)
	}
	out := []provider.Option{provider.WithCallLimits(limits), provider.WithBlobBytes(bootBytesMax)}
	t, usual := timeouts, provider.DefaultCommon("").Timeouts
	for _, one := range []struct {
		to         *time.Duration
		own, usual time.Duration
	}{
		{&t.Create, c.Timeouts.Create, usual.Create}, {&t.Configure, c.Timeouts.Configure, usual.Configure},
		{&t.Delete, c.Timeouts.Delete, usual.Delete}, {&t.DrainExtra, c.Timeouts.DrainExtra, usual.DrainExtra},
	} {
		if one.own != one.usual { // the usual one is the default
			*one.to = one.own
		}
	}
	return append(out, provider.WithTimeouts(t))
}
