// Package coordinate holds the verbs that give the coordinator an order: shards, clusters, domains, quotas, providers,
// rebalancing, Raft peers. The order goes to the leader; the reason travels in the header that its audit records (WIRE-9.7).
package coordinate

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// reasonHeader carries why to the audit.
const reasonHeader = "bigfleet-reason"

// order is one mutation.
type order struct {
	use, short, long, example string
	args                      int
	says                      func(args []string) string
	goes                      func(ctx context.Context, c caller, args []string) ([]string, error) // what else it does, as it stands; may be nil
	send                      func(ctx context.Context, c caller, args []string) (proto.Message, error)
	message                   func(proto.Message) string // nil prints "done"
}

// caller is a replica with the settings of this invocation.
type caller struct {
	fleet.Coordinator
	app *app.App
}

// call makes one Connect call with the reason in its header.
func call[Q, R any, P interface {
	*R
	proto.Message
}](ctx context.Context, c caller, method func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) (proto.Message, error) {
	r := connect.NewRequest(req)
	if c.app.Reason != "" {
		r.Header().Set(reasonHeader, c.app.Reason)
	}
	got, err := method(ctx, r)
	if err != nil {
		return nil, err
	}
	return P(got.Msg), nil
}

func (o order) command(a *app.App) *cobra.Command {
	return a.Mutates(&cobra.Command{
		Use: o.use, Args: cobra.ExactArgs(o.args), Short: o.short, Long: o.long, Example: o.example,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), a, app.Verb(c), args) },
	})
}

func (o order) run(ctx context.Context, a *app.App, verb string, args []string) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	also, err := o.also(ctx, a, f, args)
	if err != nil {
		return err
	}
	if err := a.Confirm("%s", strings.Join(append([]string{o.says(args)}, also...), " ")); err != nil {
		return err
	}
	var got proto.Message
	err = f.Leader(ctx, verb, func(ctx context.Context, c fleet.Coordinator) error {
		got, err = o.send(ctx, caller{c, a}, args)
		return err
	})
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Message(a.Out, got)
	}
	said := "done"
	if a.DryRun {
		said = "dry run: the request is valid; nothing was changed"
	} else if o.message != nil {
		said = o.message(got)
	}
	_, err = fmt.Fprintln(a.Out, said)
	return err
}

// also is what else the order does, as things stand now.
func (o order) also(ctx context.Context, a *app.App, f *fleet.Fleet, args []string) (out []string, err error) {
	if o.goes == nil {
		return nil, nil
	}
	err = f.Leader(ctx, "reading what it owns", func(ctx context.Context, c fleet.Coordinator) error {
		out, err = o.goes(ctx, caller{c, a}, args)
		return err
	})
	return out, err
}

// Verbs returns the orders by the group they belong to, for the root to hang up.
func Verbs(a *app.App) map[string][]*cobra.Command {
	out := map[string][]*cobra.Command{}
	for group, orders := range map[string][]order{
		"shards": shardOrders(), "clusters": clusterOrders(), "domains": domainOrders(), "providers": {removeProvider()},
		"raft": raftOrders(), "rebalance": {cancelMove()}, "instructions": {retryInstruction()},
	} {
		for _, o := range orders {
			out[group] = append(out[group], o.command(a))
		}
	}
	out["providers"] = append(out["providers"], newSetProvider(a))
	out["quota"] = []*cobra.Command{newSetQuota(a), newDeleteQuota(a)}
	out["rebalance"] = append(out["rebalance"], newRebalanceStatus(a), newRebalanceSet(a))
	out["raft"] = append(out["raft"], newRaftStatus(a), newRemovePeer(a))
	out["shards"] = append(out["shards"], newRemoveShard(a))
	out["clusters"] = append(out["clusters"], newBindCluster(a))
	out["domains"] = append(out["domains"], newAssign(a))
	return out
}

// domainOf reads KEY=VALUE.
func domainOf(text string) (key, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" || value == "" {
		return "", "", exit.Usagef("%q is not a domain: write KEY=VALUE, for example topology.kubernetes.io/zone=eu-1a", text)
	}
	return key, value, nil
}
