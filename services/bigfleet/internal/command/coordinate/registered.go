package coordinate

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// registered is the name under which the coordinator knows a provider, from that or from the name that people read.
func registered(ctx context.Context, c caller, name string) (string, error) {
	got, err := c.Admin.ListProviders(ctx, connect.NewRequest(&bigfleetv1alpha1.ListProvidersRequest{}))
	if err != nil {
		return "", err
	}
	all := got.Msg.GetProviders()
	if slices.ContainsFunc(all, func(p *bigfleetv1alpha1.ProviderRegistration) bool { return p.GetName() == name }) {
		return name, nil
	}
	f, err := c.app.Fleet()
	if err != nil {
		return "", err
	}
	for registration, shown := range f.ProviderNames(ctx, all) {
		if shown == name {
			return registration, nil
		}
	}
	return name, nil // the coordinator judges it
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
