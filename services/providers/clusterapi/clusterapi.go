// Package clusterapi is the provider whose machines are Machines of Cluster API, on any infrastructure that it supports.
//
// Configure makes a Machine in the namespace of the target's Cluster object: an infrastructure machine cloned from a
// template, and the operator's boot data as its bootstrap Secret. The machine is Configured once Cluster API sees its Node
// Ready. Drain deletes the Machine and waits until nothing of it is left, so no disk and no key reaches the next cluster.
// Boot data travels with the launch of a server, and a Machine belongs to one Cluster. Therefore Create only reserves a
// slot, and an idle machine is not a server and costs nothing (PROV-28.18).
//
// It owns the objects in the management cluster that carry its provider label and store id, and no others. It never talks
// to a workload cluster, never evicts a Pod (PROV-11.13), and gives up no machine because an API server does not answer.
//
// It imports nothing of Cluster API: objects are unstructured and of the contract v1beta2. It is written on sdk/provider
// like anybody's. NewCommand is the program. Start at backend.go. Clauses are cited as PROV-n.m of docs/spec/provider.md.
package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// settings is the provider's own part of the configuration file.
type settings struct {
	Kubeconfig string             `yaml:"kubeconfig" doc:"Kubeconfig of the management cluster. Empty uses the service account of the Pod."`
	Context    string             `yaml:"context" doc:"Context of the kubeconfig. Empty takes its current context."`
	Namespace  string             `yaml:"namespace" doc:"Namespace of the Cluster objects of clusters that are not listed in clusters. There, the object's name is the cluster id. Empty allows listed clusters only."`
	Clusters   map[string]cluster `yaml:"clusters" doc:"Cluster objects by cluster id."`
	// Templates are looked up in the namespace of the Cluster, as Cluster API does.
	Templates map[string]template `yaml:"templates" doc:"Infrastructure machine template by instance type."`
}

// cluster names a Cluster object.
type cluster struct {
	Namespace string `yaml:"namespace" doc:"Namespace of the Cluster object."`
	Name      string `yaml:"name" doc:"Name of the Cluster object. Empty means the cluster id."`
}

// template names an infrastructure machine template, such as an AWSMachineTemplate.
type template struct {
	APIVersion string `yaml:"api_version" doc:"API version of the template, such as infrastructure.cluster.x-k8s.io/v1beta2."`
	Kind       string `yaml:"kind" doc:"Kind of the template, which ends with Template."`
	Name       string `yaml:"name" doc:"Name of the template, in the namespace of the Cluster object."`
}

const templateSuffix = "Template"

// Validate implements the check of sdk/provider's configuration. It says everything that is wrong.
func (s *settings) Validate() error {
	var all []error
	for _, id := range slices.Sorted(maps.Keys(s.Clusters)) {
		if c := s.Clusters[id]; c.Namespace == "" {
			all = append(all, fmt.Errorf("clusters[%s]: namespace is missing", id))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Templates)) {
		t := s.Templates[kind]
		if _, err := schema.ParseGroupVersion(t.APIVersion); err != nil || t.APIVersion == "" {
			all = append(all, fmt.Errorf("templates[%s]: api_version %q is not group/version", kind, t.APIVersion))
		}
		if len(t.Kind) <= len(templateSuffix) || t.Kind[len(t.Kind)-len(templateSuffix):] != templateSuffix {
			all = append(all, fmt.Errorf("templates[%s]: kind %q does not end with %s", kind, t.Kind, templateSuffix))
		}
		if t.Name == "" {
			all = append(all, fmt.Errorf("templates[%s]: name is missing", kind))
		}
	}
	return errors.Join(all...)
}

// complete says what the offerings in force need and the configuration does not name.
func (s *settings) complete(offerings []provider.Offering) error {
	var all []error
	if s.Namespace == "" && len(s.Clusters) == 0 {
		all = append(all, errors.New("no cluster is configured: give clusters, or namespace (--namespace)"))
	}
	missing := map[string]bool{}
	for _, o := range offerings {
		if _, ok := s.Templates[o.InstanceType]; !ok && !missing[o.InstanceType] {
			missing[o.InstanceType] = true
			all = append(all, fmt.Errorf("templates[%s] is missing: offering %q needs the infrastructure machine template of its instance type", o.InstanceType, o.Key()))
		}
	}
	return errors.Join(all...)
}

// find returns the Cluster object of a cluster id.
func (s *settings) find(id string) (cluster, error) {
	if c, ok := s.Clusters[id]; ok {
		if c.Name == "" {
			c.Name = id
		}
		return c, nil
	}
	if s.Namespace == "" {
		return cluster{}, fmt.Errorf("cluster %q has no Cluster object: add it to clusters, or give namespace (--namespace)", id)
	}
	if why := validation.IsDNS1123Subdomain(id); len(why) > 0 {
		return cluster{}, fmt.Errorf("cluster id %q is not an object name: add it to clusters with the name of its Cluster object", id)
	}
	return cluster{Namespace: s.Namespace, Name: id}, nil
}

// Calls of many machines at once share one client. The management cluster is not ours alone.
const (
	clientQPS   = 100
	clientBurst = 200
)

func (s *settings) client() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if s.Kubeconfig != "" {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: s.Context}).ClientConfig()
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no management cluster: give --kubeconfig (kubeconfig), or run inside the management cluster")
	case err != nil:
		return nil, fmt.Errorf("the management cluster's kubeconfig (--kubeconfig): %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = clientQPS, clientBurst, "bigfleet-provider-clusterapi"
	return config, nil
}

// options are what every provider of this kind needs.
func options() []provider.Option {
	return []provider.Option{provider.WithReadiness(provider.SubstrateReadiness()), provider.WithBlobBytes(bootBytesMax)}
}

// NewCommand is the program bigfleet-provider-clusterapi.
func NewCommand() *cobra.Command { return program().Command() }

// Main runs the program and exits.
func Main() { provider.Main(program()) }

func program() provider.Program[settings] {
	return provider.Program[settings]{
		Name: "clusterapi", Short: "Provider whose machines are Machines of Cluster API",
		Build: func(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
			if a := s.Common.ControlAddr; a != "" && a != "0" { // PROV-24.4
				return nil, nil, errors.New("--control-addr (control_addr) is for the simulated cloud, and this one is real: leave it out, or set --use-fake-backend")
			}
			if err := s.Config.complete(s.Offerings); err != nil {
				return nil, nil, err
			}
			client, err := s.Config.client()
			if err != nil {
				return nil, nil, err
			}
			b, err := newBackend(Config{
				Name: s.Common.Provider, settings: s.Config, REST: client, OrphanAge: s.Common.Retention.Orphan, Log: s.Log,
			})
			if err != nil {
				return nil, nil, err
			}
			return b, options(), nil
		},
		Fake: substrate.Fake[settings](substrate.Config{}),
		Flags: func(cmd *cobra.Command, s *settings) {
			f := cmd.Flags()
			f.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig of the management cluster; empty uses the service account of the Pod")
			f.StringVar(&s.Context, "context", "", "context of --kubeconfig; empty takes its current context")
			f.StringVar(&s.Namespace, "namespace", "", "namespace of the Cluster objects of clusters that are not listed in clusters")
		},
	}
}
