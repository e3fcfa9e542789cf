// Package order holds the verbs that give one shard an order beyond pausing: machines, rollups, clusters, reconcile, backoff
// and reservations. Each says what it does, asks, takes a reason and supports --dry-run (OPS-4.8).
package order

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// order is one mutation of ShardAdmin.
type order struct {
	use, short, long, example string
	says                      string // with one %s for the argument
	argument                  string // name of what the argument is, for errors
	lists                     string // where its names are to be found
	send                      func(context.Context, *app.App, fleet.Shard, string) (proto.Message, error)
	message                   func(proto.Message) string
}

// command makes the verb of an order. Shards that do not know the argument are passed over; one must know it.
func (o order) command(a *app.App) *cobra.Command {
	return a.Mutates(&cobra.Command{
		Use: o.use, Args: cobra.ExactArgs(1), Short: o.short, Long: o.long, Example: o.example,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), a, app.Verb(c), args[0]) },
	})
}

func (o order) run(ctx context.Context, a *app.App, verb, argument string) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	if err := a.Confirm(o.says, argument); err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, verb, func(ctx context.Context, s fleet.Shard) (proto.Message, error) {
		got, err := o.send(ctx, a, s, argument)
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, nil
		}
		return got, err
	})
	done, list := 0, output.List{}
	for i, got := range answers {
		if got == nil || *got == nil {
			continue
		}
		done++
		list.Items, list.Shards = append(list.Items, *got), append(list.Shards, shards[i].Label())
		if !a.Format.ForPeople() {
			continue
		}
		said := o.message(*got)
		if a.DryRun {
			said = "dry run: the request is valid; nothing was changed"
		}
		_, _ = fmt.Fprintf(a.Out, "%s: %s\n", shards[i].Label(), said)
	}
	if done > 0 && !a.Format.ForPeople() {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	if done == 0 && failed == nil {
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("no shard knows the %s %s", o.argument, argument), Hint: o.lists}
	}
	return failed
}

// Group is a verb that only holds others.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exit.Usagef("%s has no verb %q: `%s --help` lists them", c.CommandPath(), args[0], c.CommandPath())
		}
		return nil
	}, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// Verbs returns the orders by the group they belong to, for the root to hang up.
func Verbs(a *app.App) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		"machines": {retry().command(a), newForget(a)}, "rollups": {accept().command(a)}, "clusters": {newRetire(a), unretire().command(a)},
		"backoff": {newClear(a)}, "reservations": {abandon().command(a)},
	}
}

// answer unwraps a Connect answer for order.send.
func answer[T any, P interface {
	*T
	proto.Message
}](got *connect.Response[T], err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return P(got.Msg), nil
}

func retry() order {
	return order{
		use: "retry MACHINE", short: "Clear a machine's backoffs and retry at its provider", example: "  bigfleet machines retry m-0001 --reason 'quota raised'",
		says: "Clears the backoffs of machine %s and retries at its provider.", argument: "machine", lists: "`bigfleet get machines` lists them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			return answer(s.Admin.RetryMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.RetryMachineRequest{MachineId: id, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(m proto.Message) string {
			v := m.(*bigfleetv1alpha1.RetryMachineResponse).GetMachine().GetMachine()
			return v.GetId() + " is " + output.Enum("MACHINE_STATE_", v.GetState().String())
		},
	}
}

// newForget needs the cluster of a machine that failed while it served, as a proof that the person knows what is lost.
func newForget(a *app.App) *cobra.Command {
	var failedIn string
	o := order{
		use: "forget MACHINE", short: "Ignore a machine until its state at the provider changes",
		example: "  bigfleet machines forget m-0001 --reason 'broken disk'\n  bigfleet machines forget m-0002 --failed-in red --reason 'the provider cannot repair it'",
		says:    "Ignores machine %s: BigFleet neither uses nor releases it until its provider reports another state. The provider charges for its host as long as that exists.", argument: "machine", lists: "`bigfleet get machines` lists them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			return answer(s.Admin.ForgetMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.ForgetMachineRequest{MachineId: id, FailedInCluster: failedIn, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(m proto.Message) string {
			if cost := m.(*bigfleetv1alpha1.ForgetMachineResponse).GetCostPerHour(); cost > 0 {
				return fmt.Sprintf("forgotten; its provider may continue to charge %s for its host", output.Dollars(cost))
			}
			return "forgotten"
		},
	}
	c := o.command(a)
	c.Flags().StringVar(&failedIn, "failed-in", "", "cluster in which the machine failed: forget it although it is bound there; a Node that is left stays")
	return c
}

func accept() order {
	return order{
		use: "accept CLUSTER", short: "Accept a held roll-up",
		long: "A shard holds a roll-up that suddenly requests much less: the last accepted demand stays in force, and nothing is released for it.\n" +
			"This puts the held roll-up in force and opens the cluster's release gate. `bigfleet guards` shows what is held.",
		example: "  bigfleet rollups accept red --reason 'the team confirmed the shutdown'",
		says:    "Accepts the held roll-up of cluster %s: machines that are no longer needed will be drained, within the reclaim budget.", argument: "held roll-up of cluster", lists: "`bigfleet guards` shows which are held",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			return answer(s.Admin.AcceptRollup(ctx, connect.NewRequest(&bigfleetv1alpha1.AcceptRollupRequest{ClusterId: id, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(m proto.Message) string {
			r := m.(*bigfleetv1alpha1.AcceptRollupResponse)
			return fmt.Sprintf("accepted: %s before, %d after, %s", output.Count(int(r.GetNeedsBefore()), "need"), r.GetNeedsAfter(), output.Count(int(r.GetSurplusMachines()), "surplus machine"))
		},
	}
}

func unretire() order {
	return order{
		use: "unretire CLUSTER", short: "Undo the retirement of a cluster", example: "  bigfleet clusters unretire red --reason 'it is back'",
		says: "Undoes the retirement of cluster %s.", argument: "cluster", lists: "`bigfleet get clusters` lists them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			if err := known(ctx, s, id); err != nil { // the order itself is content with any name
				return nil, err
			}
			return answer(s.Admin.UnretireCluster(ctx, connect.NewRequest(&bigfleetv1alpha1.UnretireClusterRequest{ClusterId: id, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(proto.Message) string { return "retirement undone" },
	}
}

// known is nil when the shard has heard of the cluster.
func known(ctx context.Context, s fleet.Shard, cluster string) error {
	req := &bigfleetv1alpha1.ListClustersRequest{}
	for {
		got, err := s.Read.ListClusters(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		for _, c := range got.Msg.GetClusters() {
			if c.GetClusterId() == cluster {
				return nil
			}
		}
		if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
			return connect.NewError(connect.CodeNotFound, errors.New("no such cluster"))
		}
	}
}

func abandon() order {
	return order{
		use: "abandon MOVE", short: "Abandon the reservation of a move",
		long: "Gives the machines that a shard has reserved for a move back to its own needs. It is for moves that can no longer complete.", example: "  bigfleet reservations abandon mv-17 --reason 'the recipient is gone'",
		says: "Abandons the reservation of move %s.", argument: "move", lists: "`bigfleet get moves` lists them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			return answer(s.Admin.AbandonReservation(ctx, connect.NewRequest(&bigfleetv1alpha1.AbandonReservationRequest{MoveId: id, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(m proto.Message) string {
			return "freed " + output.Count(len(m.(*bigfleetv1alpha1.AbandonReservationResponse).GetMachineIds()), "machine")
		},
	}
}

// newRetire needs the number of machines as a proof that the person knows the cluster.
func newRetire(a *app.App) *cobra.Command {
	var bound int32
	o := order{
		use: "retire CLUSTER", short: "Retire a silent cluster: its machines are released",
		long: "Sets the demand of a cluster that does not come back to zero: its machines are drained and released. Until it is retired, a silent cluster keeps\n" +
			"them, however long it is silent. `bigfleet clusters unretire` or a new connection of the cluster undoes it.", example: "  bigfleet clusters retire red --machines 12 --reason 'decommissioned'",
		says: "Retires cluster %s: its demand becomes zero, and its machines are drained and released.", argument: "cluster", lists: "`bigfleet get clusters` lists them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, id string) (proto.Message, error) {
			return answer(s.Admin.RetireCluster(ctx, connect.NewRequest(&bigfleetv1alpha1.RetireClusterRequest{ClusterId: id, BoundMachines: bound, Reason: a.Reason, ValidateOnly: a.DryRun})))
		},
		message: func(m proto.Message) string {
			return fmt.Sprintf("retired: %s will be released", output.Count(int(m.(*bigfleetv1alpha1.RetireClusterResponse).GetBoundMachines()), "machine"))
		},
	}
	c := o.command(a)
	c.Flags().Int32Var(&bound, "machines", 0, "number of machines of the cluster, as a safeguard; may be off by 10%")
	_ = c.MarkFlagRequired("machines") // fails only for an unknown flag
	return c
}

// NewReconcile returns `reconcile`.
func NewReconcile(a *app.App) *cobra.Command {
	var provider string
	c := &cobra.Command{
		Use: "reconcile", Args: cobra.NoArgs, Short: "Read the full lists of the providers now", Example: "  bigfleet reconcile --reason 'after the outage'",
	}
	c.Flags().StringVar(&provider, "provider", "", "only this provider")
	o := order{
		says: "Reads the full list of %s.", argument: "provider", lists: "`bigfleet status` names them",
		send: func(ctx context.Context, a *app.App, s fleet.Shard, _ string) (proto.Message, error) {
			return answer(s.Admin.ReconcileNow(ctx, connect.NewRequest(&bigfleetv1alpha1.ReconcileNowRequest{Provider: provider, Reason: a.Reason})))
		},
		message: func(m proto.Message) string {
			r := m.(*bigfleetv1alpha1.ReconcileNowResponse)
			return fmt.Sprintf("%s read, %d rejected, %s held", output.Count(int(r.GetMachines()), "machine"), r.GetRejected(), output.Count(int(r.GetRemovalsHeld()), "removal"))
		},
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if a.DryRun {
			return exit.Usagef("reconcile only reads: it has no --dry-run")
		}
		what := "every provider"
		if provider != "" {
			what = "provider " + provider
		}
		return o.run(c.Context(), a, app.Verb(c), what)
	}
	c = a.Mutates(c)
	_ = c.Flags().MarkHidden("dry-run") // the verb refuses it, with the reason
	return c
}

func newClear(a *app.App) *cobra.Command {
	var cluster, pool, provider string
	c := &cobra.Command{
		Use: "clear", Args: cobra.NoArgs, Short: "Clear backoffs of a cluster, pool or provider", Example: "  bigfleet backoff clear --cluster red --reason 'template fixed'",
	}
	c.Flags().StringVar(&cluster, "cluster", "", "a cluster")
	c.Flags().StringVar(&pool, "pool", "", "pool, as printed by bigfleet status")
	c.Flags().StringVar(&provider, "provider", "", "a provider")
	c.MarkFlagsMutuallyExclusive("cluster", "pool", "provider")
	c.MarkFlagsOneRequired("cluster", "pool", "provider")
	c.RunE = func(c *cobra.Command, _ []string) error {
		req := &bigfleetv1alpha1.ClearBackoffRequest{Reason: a.Reason, ValidateOnly: a.DryRun}
		what := ""
		switch {
		case cluster != "":
			what, req.Subject = "cluster "+cluster, &bigfleetv1alpha1.ClearBackoffRequest_ClusterId{ClusterId: cluster}
		case pool != "":
			what, req.Subject = "pool "+pool, &bigfleetv1alpha1.ClearBackoffRequest_Pool{Pool: pool}
		case provider != "":
			what, req.Subject = "provider "+provider, &bigfleetv1alpha1.ClearBackoffRequest_Provider{Provider: provider}
		default:
			return errors.New("nothing selected")
		}
		return order{
			says: "Clears the backoffs of %s.", argument: "backoff of",
			send: func(ctx context.Context, _ *app.App, s fleet.Shard, _ string) (proto.Message, error) {
				return answer(s.Admin.ClearBackoff(ctx, connect.NewRequest(req)))
			},
			message: func(m proto.Message) string {
				return fmt.Sprintf("%d cleared", m.(*bigfleetv1alpha1.ClearBackoffResponse).GetCleared())
			},
		}.run(c.Context(), a, app.Verb(c), what)
	}
	return a.Mutates(c)
}
