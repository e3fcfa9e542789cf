package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
)

// retireLimit bounds how long the provider may take to end one FAILED machine.
const retireLimit = time.Minute

func hasHost(m *machine) bool {
	return m.GetHost().GetRef() != "" || m.GetHost().GetProvider() != ""
}

// cleanUp gives back what the run made, and reports what is left (PROV-29.7): a machine that had no host before the run is
// drained and deleted, and one that the run left FAILED is retired where ProviderAdmin is served. A machine that the run did
// not use is not touched.
func (s *suite) cleanUp(ctx context.Context, r *Report) error {
	made, err := s.made(ctx)
	if err != nil {
		return err
	}
	c := s.newCase(ctx, behaviour{name: "clean-up"})
	for _, m := range made {
		if m.GetState() == failed {
			s.retire(ctx, m.GetId())
		} else if s.target.claims(Cloud) {
			c.taken[m.GetId()] = true
		}
	}
	c.tidy()
	if made, err = s.made(ctx); err != nil {
		return err
	}
	for _, m := range made {
		if m.GetState() == failed {
			r.Failed = append(r.Failed, m.GetId())
		}
		if hasHost(m) && !s.hosted[m.GetId()] && (m.GetState() == failed || s.target.claims(Cloud)) {
			r.Left = append(r.Left, fmt.Sprintf("%s (%s, host %s)", m.GetId(), name(m.GetState()), m.GetHost().GetRef()))
		}
	}
	return nil
}

// made lists the machines of the run that have a host which was not there before, and those that it left FAILED.
func (s *suite) made(ctx context.Context) (all []*machine, err error) {
	list, err := s.dialer.provider(s.target.TLS).List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil {
		return nil, fmt.Errorf("conformance: List at the end of the run: %w", err)
	}
	for _, m := range list.Msg.GetMachines() {
		if s.failedOnes[m.GetId()] && m.GetState() == failed || s.used[m.GetId()] && hasHost(m) && !s.hosted[m.GetId()] {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(a.GetId(), b.GetId()) })
	return all, nil
}

// retire ends a FAILED machine of the run. A provider without ProviderAdmin, or one that refuses, keeps it; the report says so.
func (s *suite) retire(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, retireLimit)
	defer cancel()
	_, _ = s.dialer.admin(s.target.TLS).RetireMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{
		Id: id, Force: true, Reason: "conformance run " + s.run + " is over",
	}))
}
