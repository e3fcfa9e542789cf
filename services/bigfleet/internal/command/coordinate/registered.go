package coordinate

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// registered is the name under which the coordinator knows a provider. People also know the name that the provider gives itself, which
// shards and tables of machines show: it leads to the address, and that to the registration.
func registered(ctx context.Context, c caller, name string) (string, error) {
	got, err := c.Admin.ListProviders(ctx, connect.NewRequest(&bigfleetv1alpha1.ListProvidersRequest{}))
	if err != nil {
		return "", err
	}
	all := got.Msg.GetProviders()
	if slices.ContainsFunc(all, func(p *bigfleetv1alpha1.ProviderRegistration) bool { return p.GetName() == name }) {
		return name, nil
	}
	_, shards, err := c.app.Shards(ctx)
	if err != nil {
		return name, nil //nolint:nilerr // without the shards the name stays as it was written, and the coordinator judges it
	}
	found := map[string]bool{}
	for _, s := range shards {
		status, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			continue // another shard may know it
		}
		for _, p := range status.Msg.GetProviders() {
			for _, r := range all {
				if p.GetName() == name && slices.Contains(r.GetAddresses(), p.GetAddress()) {
					found[r.GetName()] = true
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return name, nil
	case 1:
		for only := range found {
			name = only
		}
		return name, nil
	}
	return "", exit.Usagef("several registrations lead to provider %s: name one of those that `bigfleet get providers` lists", name)
}

// hasQuota refuses the name of a provider without a quota, which a deletion would pass over in silence.
func hasQuota(ctx context.Context, c caller, said, provider, region string) error {
	got, err := c.Admin.ListQuotas(ctx, connect.NewRequest(&bigfleetv1alpha1.ListQuotasRequest{}))
	if err != nil {
		return err
	}
	for _, q := range got.Msg.GetQuotas() {
		if q.GetProvider() == provider && q.GetRegion() == region {
			return nil
		}
	}
	what := "provider " + said
	if region != "" {
		what += " in region " + region
	}
	return &exit.Error{Code: exit.NotFound, Message: "there is no quota of " + what, Hint: "`bigfleet get quotas` lists them"}
}
