package doctor

import (
	"context"
	"slices"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// sampleMax is how many machines a provider is judged by.
const sampleMax = 200

// unlikely is a machine id that no provider has.
const unlikely = "bigfleet-doctor-asks-for-a-machine-that-does-not-exist"

// provider looks at what a shard would stumble over, without changing anything. The full suite is `bigfleet provider conformance`.
func provider(ctx context.Context, a *app.App, f *fleet.Fleet, r *report, about, address string) {
	p, err := f.Provider(address)
	if err != nil {
		r.fail(about, "", "%v", err)
		return
	}
	bounded, cancel := f.Deadline(ctx)
	defer cancel()
	list, err := p.Machines.List(bounded, connect.NewRequest(&bigfleetv1alpha1.ListFilter{MaxResults: sampleMax}))
	if err != nil {
		r.fail(about, "Check its log; a shard cannot become ready without List", "List fails: %v", err)
		return
	}
	clock(a, r, about, list.Header())
	bad, first := judge(list.Msg.GetMachines())
	if bad > 0 {
		r.fail(about, "Run `bigfleet provider conformance "+address+"`; shards skip such records", "%d of %d records break the contract, first: %s", bad, len(list.Msg.GetMachines()), first)
	}
	_, err = p.Machines.Get(bounded, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: unlikely}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		r.fail(about, "Run `bigfleet provider conformance "+address+"`", "Get of an unknown machine answers %v instead of NOT_FOUND", connect.CodeOf(err))
	}
	described, err := p.Admin.GetProvider(bounded, connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{}))
	switch {
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		r.warn(about, "Above 10,000 machines it must support cursors", "it does not implement GetProvider, so shards read its full list every time")
	case err != nil:
		r.fail(about, "Check its log", "GetProvider fails: %v", err)
	case !slices.Contains(described.Msg.GetCapabilities(), "cursor"):
		r.warn(about, "Above 10,000 machines it must support cursors", "it does not support cursors, so shards read its full list every time")
	}
	if bad == 0 {
		r.ok(about, "%s sampled, all within the contract", output.Count(len(list.Msg.GetMachines()), "machine"))
	}
}

func judge(machines []*bigfleetv1alpha1.Machine) (bad int, first string) {
	ids := map[string]bool{}
	for _, m := range machines {
		err := protovalidate.Validate(m)
		message := ""
		switch {
		case err != nil:
			message = m.GetId() + ": " + err.Error()
		case ids[m.GetId()]:
			message = m.GetId() + " is listed twice"
		}
		ids[m.GetId()] = true
		if message != "" {
			bad++
			if first == "" {
				first = message
			}
		}
	}
	return bad, first
}
