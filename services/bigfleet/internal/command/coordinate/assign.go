package coordinate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// newAssign claims one domain, or makes many as a file says.
func newAssign(a *app.App) *cobra.Command {
	var file string
	one := order{
		use: "assign [KEY=VALUE SHARD]", args: 2, short: "Assign an unowned domain to a shard, or the domains in a file",
		example: "  bigfleet domains assign topology.kubernetes.io/zone=eu-1a shard-0\n  bigfleet domains assign --from-file domains.yaml",
		says:    func(a []string) string { return "Assigns domain " + a[0] + " to shard " + a[1] + "." },
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			key, value, err := domainOf(a[0])
			if err != nil {
				return nil, err
			}
			return call(ctx, c, c.Core.AssignDomain, &bigfleetv1alpha1.AssignDomainRequest{TopologyKey: key, TopologyValue: value, ShardId: a[1], ValidateOnly: c.app.DryRun})
		},
	}
	c := one.command(a)
	c.Long = "The file has the format of `bigfleet get domains -o yaml`: a list of items with topologyKey, topologyValue and shardId.\n" +
		"An unowned domain is claimed. A domain of another shard is handed over: the old owner releases it first. A domain that the\n" +
		"file does not name stays unchanged. The command shows the changes before it makes them."
	c.Args = func(c *cobra.Command, args []string) error {
		if file == "" {
			return cobra.ExactArgs(2)(c, args)
		}
		return cobra.NoArgs(c, args)
	}
	c.Flags().StringVarP(&file, "from-file", "f", "", "file that lists domains and their shards; - reads standard input")
	single := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if file == "" {
			return single(c, args)
		}
		wanted, err := readDomains(a, file)
		if err != nil {
			return err
		}
		return assignAll(c.Context(), a, wanted)
	}
	return c
}

func domainName(d *bigfleetv1alpha1.DomainAssignment) string {
	return d.GetTopologyKey() + "=" + d.GetTopologyValue()
}

// readDomains reads what `get domains -o yaml` prints, strictly.
func readDomains(a *app.App, file string) ([]*bigfleetv1alpha1.DomainAssignment, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(a.In)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, exit.Usagef("domains: %v", err)
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := yaml.UnmarshalStrict(raw, &list); err != nil {
		return nil, exit.Usagef("%s is not a list of domains: %v", file, err)
	}
	seen := map[string]string{}
	var out []*bigfleetv1alpha1.DomainAssignment
	for i, item := range list.Items {
		d := &bigfleetv1alpha1.DomainAssignment{}
		delete(item, "since") // beside the wire's own fields in what `get` prints
		delete(item, "shard")
		raw, err := json.Marshal(item)
		if err == nil {
			err = protojson.Unmarshal(raw, d)
		}
		if err != nil {
			return nil, exit.Usagef("%s, item %d: %v", file, i, err)
		}
		name := domainName(d)
		switch other := seen[name]; {
		case d.GetTopologyKey() == "" || d.GetTopologyValue() == "" || d.GetShardId() == "":
			return nil, exit.Usagef("%s, item %d: topologyKey, topologyValue and shardId are all required", file, i)
		case other != "" && other != d.GetShardId():
			return nil, exit.Usagef("%s, item %d: %s is assigned both to %s and to %s", file, i, name, other, d.GetShardId())
		case other != "":
			continue
		}
		seen[name] = d.GetShardId()
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, exit.Usagef("%s lists no domain: it needs items with topologyKey, topologyValue and shardId", file)
	}
	return out, nil
}

// change is one domain that gets another owner.
type change struct {
	*bigfleetv1alpha1.DomainAssignment
	from string // "" when no shard owns it
}

// assignAll shows what differs, asks once, and does it one after the other.
func assignAll(ctx context.Context, a *app.App, wanted []*bigfleetv1alpha1.DomainAssignment) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	changes, err := differences(ctx, f, wanted)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.from == "" {
			a.Notef("+ %s  %s", domainName(c.DomainAssignment), c.GetShardId())
		} else {
			a.Notef("~ %s  %s -> %s", domainName(c.DomainAssignment), c.from, c.GetShardId())
		}
	}
	if len(changes) == 0 {
		a.Notef("%s already assigned as requested.", output.Count(len(wanted), "domain"))
		return nil
	}
	if err := a.Confirm("Changes the owner of %s; %d are already assigned as requested.", output.Count(len(changes), "domain"), len(wanted)-len(changes)); err != nil {
		return err
	}
	for i, d := range changes {
		err := f.Leader(ctx, "changing "+domainName(d.DomainAssignment), func(ctx context.Context, co fleet.Coordinator) error {
			_, err := d.send(ctx, caller{co, a})
			return err
		})
		if err != nil {
			a.Notef("%d of %d were changed; repeat the command for the rest", i, len(changes))
			return err
		}
	}
	said := output.Count(len(changes), "domain") + " changed"
	if a.DryRun {
		said = output.Count(len(changes), "domain") + " would be changed (dry run)"
	}
	_, err = fmt.Fprintln(a.Out, said)
	return err
}

func (d change) send(ctx context.Context, c caller) (proto.Message, error) {
	if d.from == "" {
		return call(ctx, c, c.Core.AssignDomain, &bigfleetv1alpha1.AssignDomainRequest{TopologyKey: d.GetTopologyKey(), TopologyValue: d.GetTopologyValue(), ShardId: d.GetShardId(), ValidateOnly: c.app.DryRun})
	}
	return call(ctx, c, c.Admin.MoveDomain, &bigfleetv1alpha1.MoveDomainRequest{TopologyKey: d.GetTopologyKey(), TopologyValue: d.GetTopologyValue(), ToShardId: d.GetShardId(), ValidateOnly: c.app.DryRun})
}

// differences compares what is wanted with what is. A domain on its way to the wanted shard is as wanted.
func differences(ctx context.Context, f *fleet.Fleet, wanted []*bigfleetv1alpha1.DomainAssignment) ([]change, error) {
	is := map[string]*bigfleetv1alpha1.DomainAssignment{}
	err := f.Leader(ctx, "listing domains", func(ctx context.Context, c fleet.Coordinator) error {
		for token := ""; ; {
			got, err := c.Core.ListDomainAssignments(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainAssignmentsRequest{PageToken: token}))
			if err != nil {
				return err
			}
			for _, d := range got.Msg.GetAssignments() {
				is[domainName(d)] = d
			}
			if token = got.Msg.GetNextPageToken(); token == "" {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	var out []change
	for _, d := range wanted {
		now := is[domainName(d)]
		if now.GetNextShardId() == d.GetShardId() || now.GetNextShardId() == "" && now.GetShardId() == d.GetShardId() {
			continue
		}
		out = append(out, change{d, now.GetShardId()})
	}
	return out, nil
}
