package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// completeWithin bounds the questions for live names. The rest of the 500 ms of OPS-4.11, for which a shell waits, is for the start of
// the process and for what has arrived by then.
const completeWithin = 400 * time.Millisecond

// namesMax bounds how many names of one kind are offered.
const namesMax = 200

// Complete offers live names of the given kinds, each behind a prefix: machine, need, cluster, session, shard, pause, provider, zone, type, pool,
// domain, move, peer, instruction, registration, and those of inCluster.
func (a *App) Complete(prefixes map[string]string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		const quiet = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 || a.Check() != nil {
			return nil, quiet
		}
		ctx, cancel := Completing(c)
		defer cancel()
		var out []string
		for kind, prefix := range prefixes {
			rest, fits := strings.CutPrefix(typed, prefix)
			if !fits && !strings.HasPrefix(prefix, typed) {
				continue
			}
			names := a.names
			if _, inCluster := inCluster[kind]; inCluster {
				names = func(ctx context.Context, kind, typed string) []string { return a.clusterNames(ctx, c, kind, typed) }
			}
			for _, name := range names(ctx, kind, rest) {
				if name = prefix + name; strings.HasPrefix(name, typed) {
					out = append(out, name)
				}
			}
		}
		return out, quiet
	}
}

// CompleteSubjects offers subjects of the given forms, for example machine/. Of KIND NAME it completes the name, where the verb takes that.
func (a *App) CompleteSubjects(forms ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 && slices.Contains(forms, args[0]+"/") {
			return a.Complete(map[string]string{args[0]: ""})(c, nil, typed)
		}
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, f := range forms {
			if strings.HasPrefix(typed, f) {
				return a.Complete(map[string]string{strings.TrimSuffix(f, "/"): f})(c, args, typed)
			}
		}
		return forms, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// namedAs are the kinds of `bigfleet get` that go by the names of another kind.
var namedAs = map[string]string{"quota": "registration", "binding": "cluster", "hint": "cluster", "drain": "machine", "handover": "domain", "report": "shard"}

// names are live ones of one kind that begin with what was typed; none of what does not answer in time.
func (a *App) names(ctx context.Context, kind, typed string) (out []string) {
	kind = cmp.Or(namedAs[kind], kind)
	if slices.Contains([]string{"domain", "move", "peer", "instruction", "registration"}, kind) {
		f, err := a.Fleet()
		if err != nil {
			return nil
		}
		_ = f.Leader(ctx, "listing names", func(ctx context.Context, c fleet.Coordinator) error { // without an answer there are no names
			out, err = ofCoordinator(ctx, f, c, kind)
			return err
		})
		return out
	}
	_, shards, err := a.Shards(ctx)
	if err != nil {
		return nil
	}
	parts := make([][]string, len(shards))
	var all sync.WaitGroup
	for i, s := range shards {
		all.Go(func() { parts[i] = ofShard(ctx, kind, typed, s) })
	}
	all.Wait()
	out = slices.Concat(parts...)
	slices.Sort(out)
	out = slices.Compact(out) // shards share providers, zones and types
	return out[:min(len(out), namesMax)]
}

func ofCoordinator(ctx context.Context, f *fleet.Fleet, c fleet.Coordinator, kind string) (out []string, err error) {
	switch kind {
	case "move":
		got, err := c.Admin.ListMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMovesRequest{}))
		if err != nil {
			return nil, err
		}
		for _, m := range got.Msg.GetMoves() {
			out = append(out, m.GetMoveId())
		}
	case "peer":
		got, err := c.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		if err != nil {
			return nil, err
		}
		for _, p := range got.Msg.GetPeers() {
			out = append(out, p.GetNodeId())
		}
	case "instruction":
		got, err := c.Admin.ListInstructions(ctx, connect.NewRequest(&bigfleetv1alpha1.ListInstructionsRequest{}))
		if err != nil {
			return nil, err
		}
		for _, i := range got.Msg.GetInstructions() {
			out = append(out, i.GetInstruction().GetInstructionId())
		}
	case "registration":
		got, err := c.Admin.ListProviders(ctx, connect.NewRequest(&bigfleetv1alpha1.ListProvidersRequest{}))
		if err != nil {
			return nil, err
		}
		for _, name := range f.ProviderNames(ctx, got.Msg.GetProviders()) {
			out = append(out, name)
		}
		slices.Sort(out)
	default:
		got, err := c.Core.ListDomainAssignments(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainAssignmentsRequest{PageSize: namesMax}))
		if err != nil {
			return nil, err
		}
		for _, d := range got.Msg.GetAssignments() {
			out = append(out, d.GetTopologyKey()+"="+d.GetTopologyValue())
		}
	}
	return out, nil
}

func ofShard(ctx context.Context, kind, typed string, s fleet.Shard) (out []string) {
	switch kind {
	case "shard":
		return []string{s.Label()}
	case "machine":
		req := &bigfleetv1alpha1.ListMachinesRequest{PageSize: namesMax}
		for { // by id, so what was typed may be pages away; the deadline ends it with what was found
			got, err := s.Read.ListMachines(ctx, connect.NewRequest(req))
			if err != nil {
				return out
			}
			for _, m := range got.Msg.GetMachines() {
				id := m.GetMachine().GetId()
				if strings.HasPrefix(id, typed) {
					out = append(out, id)
				} else if id > typed {
					return out // the pages are by id: what begins so is behind us
				}
			}
			if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" || len(out) >= namesMax {
				return out
			}
			req.PageSize = 5000
		}
	case "zone", "type":
		got, err := s.Read.ListMachines(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMachinesRequest{PageSize: 5000})) // the rest of a large fleet would take too long
		if err != nil {
			return nil
		}
		for _, m := range got.Msg.GetMachines() {
			if kind == "zone" {
				out = append(out, m.GetMachine().GetZone())
			} else {
				out = append(out, m.GetMachine().GetInstanceType())
			}
		}
		slices.Sort(out)
		out = slices.Compact(out)
	case "provider":
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil
		}
		for _, p := range got.Msg.GetProviders() {
			out = append(out, p.GetName())
		}
	case "pool":
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil
		}
		for _, p := range got.Msg.GetProviders() {
			for _, pool := range p.GetStockedOutPools() {
				out = append(out, pool.GetPool())
			}
		}
	case "pause":
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil
		}
		for _, p := range got.Msg.GetPauses() {
			out = append(out, p.GetPauseId())
		}
	case "cluster", "session":
		got, err := s.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{PageSize: namesMax}))
		if err != nil {
			return nil
		}
		for _, c := range got.Msg.GetClusters() {
			out = append(out, c.GetClusterId())
		}
	case "need":
		stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{Limit: namesMax}))
		if err != nil {
			return nil
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			if n := stream.Msg().GetNeed(); n != nil {
				out = append(out, n.GetClusterId()+"/"+n.GetNeed().GetRowId())
			}
		}
	}
	return out
}
