package coordinate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

func newSetProvider(a *app.App) *cobra.Command {
	p := &bigfleetv1alpha1.ProviderRegistration{}
	var policy string
	o := order{
		use: "set PROVIDER", args: 1, short: "Add or replace a provider", example: "  bigfleet providers set sim --address 127.0.0.1:9000 --partition-key topology.kubernetes.io/zone",
		says: func(args []string) string { return "Sets provider " + args[0] + "." },
		send: func(ctx context.Context, c caller, args []string) (proto.Message, error) {
			p.Name = args[0]
			if policy != "" {
				n := bigfleetv1alpha1.UnownedPolicy_value["UNOWNED_POLICY_"+strings.ToUpper(strings.ReplaceAll(policy, "-", "_"))]
				if n == 0 {
					return nil, exit.Usagef("--unowned %s is unknown: use default-owner or auto-assign", policy)
				}
				p.UnownedPolicy = bigfleetv1alpha1.UnownedPolicy(n)
			}
			return call(ctx, c, c.Admin.UpsertProvider, &bigfleetv1alpha1.UpsertProviderRequest{Provider: p, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().StringSliceVar(&p.Addresses, "address", nil, "host:port; repeatable")
	c.Flags().StringVar(&p.Region, "region", "", "region")
	c.Flags().StringSliceVar(&p.PartitionKeys, "partition-key", nil, "topology key that splits ownership; repeatable")
	c.Flags().StringVar(&p.DefaultOwner, "default-owner", "", "shard that owns unassigned domains")
	c.Flags().StringVar(&policy, "unowned", "", "policy for unassigned domains: default-owner or auto-assign")
	return c
}

func newSetQuota(a *app.App) *cobra.Command {
	q := &bigfleetv1alpha1.Quota{Slices: map[string]int32{}}
	var slices map[string]int
	o := order{
		use: "set PROVIDER MACHINES", args: 2, short: "Set a quota and its slices",
		long: "A quota is the number of on-demand and spot machines that the shards together may hold of a provider, in one region or in any. A slice is the\n" +
			"part of one shard. The slices of a quota add up to at most the quota. A shard at its slice buys no more; machines that exist are never\n" +
			"released for a quota.", example: "  bigfleet quota set sim 100 --region eu-1 --slice shard-0=60 --slice shard-1=40",
		says: func(args []string) string {
			return "Declares " + args[1] + " machines of provider " + args[0] + "."
		},
		send: func(ctx context.Context, c caller, args []string) (proto.Message, error) {
			n, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || n < 0 {
				return nil, exit.Usagef("%q is not a number of machines", args[1])
			}
			name, err := registered(ctx, c, args[0])
			if err != nil {
				return nil, err
			}
			q.Provider, q.Declared = name, int32(n)
			for shard, n := range slices {
				q.Slices[shard] = int32(n)
			}
			return call(ctx, c, c.Admin.SetQuota, &bigfleetv1alpha1.SetQuotaRequest{Quota: q, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().StringVar(&q.Region, "region", "", "region")
	c.Flags().StringToIntVar(&slices, "slice", nil, "SHARD=MACHINES; repeatable")
	return c
}

func newDeleteQuota(a *app.App) *cobra.Command {
	var region string
	o := order{
		use: "delete PROVIDER", args: 1, short: "Delete a quota", example: "  bigfleet quota delete sim --region eu-1 --reason 'no limit any more'",
		says: func(args []string) string { return "Deletes the quota of provider " + args[0] + "." },
		send: func(ctx context.Context, c caller, args []string) (proto.Message, error) {
			name, err := registered(ctx, c, args[0])
			if err != nil {
				return nil, err
			}
			if err := hasQuota(ctx, c, args[0], name, region); err != nil {
				return nil, err
			}
			return call(ctx, c, c.Admin.DeleteQuota, &bigfleetv1alpha1.DeleteQuotaRequest{Provider: name, Region: region, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().StringVar(&region, "region", "", "region")
	return c
}

// newRaftStatus asks each replica for itself, so it works without a leader.
func newRaftStatus(a *app.App) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Show the status of each replica; works without a leader", Example: "  bigfleet raft status --coordinator 127.0.0.1:7790",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return raftStatus(ctx, a) })
		},
	})
}

func raftStatus(ctx context.Context, a *app.App) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	replicas, err := f.Replicas()
	if err != nil {
		return err
	}
	l := output.List{Columns: []output.Column{
		{Head: "NODE"}, {Head: "ROLE"}, {Head: "LEADER"}, {Head: "TERM"}, {Head: "COMMITTED"}, {Head: "APPLIED"}, {Head: "STATE"}, {Head: "CLUSTER", Wide: true}, {Head: "BUILD", Wide: true},
	}}
	var failed []error
	for _, r := range replicas {
		bounded, cancel := f.Deadline(ctx)
		got, err := r.Admin.GetCoordinatorStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		cancel()
		if err != nil {
			failed = append(failed, fleet.Unanswered("the status of "+r.Address, err))
			continue
		}
		s := got.Msg
		l.Items = append(l.Items, s)
		l.Names = append(l.Names, "peer/"+s.GetNodeId())
		l.Rows = append(l.Rows, []string{
			s.GetNodeId(), s.GetRole(), output.Dash(s.GetLeader().GetLeaderId()), fmt.Sprint(s.GetRaftTerm()), fmt.Sprint(s.GetCommitIndex()), fmt.Sprint(s.GetAppliedIndex()),
			output.Dash(s.GetStateHash()), output.Dash(s.GetClusterUuid()), output.Dash(s.GetBuild()),
		})
	}
	if len(l.Rows) > 0 {
		if err := a.Format.Write(a.Out, l); err != nil {
			return err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	for _, err := range failed[:len(failed)-1] { // the last one ends the verb, which says it
		a.Notef("%v", err)
	}
	return failed[len(failed)-1]
}
