package fleet

import (
	"context"
	"slices"
	"strings"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ProviderNames are the names that people read of registrations, by the names under which the coordinator has them. It registers a provider
// that is not set by the address that shards report; people know it by the name that its shards give it, as in every table of machines.
// A registration keeps its own name where no shard answers, and where two would have the same.
func (f *Fleet) ProviderNames(ctx context.Context, registered []*bigfleetv1alpha1.ProviderRegistration) map[string]string {
	shown, uses := map[string]string{}, map[string]int{}
	for _, r := range registered {
		shown[r.GetName()] = r.GetName()
		uses[r.GetName()]++
	}
	byAddress := func(r *bigfleetv1alpha1.ProviderRegistration) bool {
		return slices.Contains(r.GetAddresses(), r.GetName())
	}
	if !slices.ContainsFunc(registered, byAddress) {
		return shown
	}
	shards, err := f.Shards(ctx)
	if err != nil {
		return shown
	}
	found := map[string]string{}
	for _, r := range registered {
		if !byAddress(r) {
			continue
		}
		if name := f.calledBy(ctx, shards, r); name != "" {
			found[r.GetName()] = name
			uses[name]++
		}
	}
	for r, name := range found {
		if uses[name] == 1 {
			shown[r] = name
		}
	}
	return shown
}

// calledBy is what the first shard of a registration that answers calls its providers; "" for none.
func (f *Fleet) calledBy(ctx context.Context, shards []Shard, r *bigfleetv1alpha1.ProviderRegistration) string {
	for _, s := range shards {
		if s.ID != "" && !slices.Contains(r.GetShardIds(), s.ID) {
			continue
		}
		bounded, cancel := f.Deadline(ctx)
		got, err := s.Read.GetStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		cancel()
		if err != nil {
			continue
		}
		var names []string
		for address := range strings.SplitSeq(r.GetName(), ",") { // several providers of a shard are registered as one
			for _, p := range got.Msg.GetProviders() {
				if p.GetAddress() == address {
					names = append(names, p.GetName())
				}
			}
		}
		if len(names) == strings.Count(r.GetName(), ",")+1 {
			return strings.Join(names, ",")
		}
	}
	return ""
}
