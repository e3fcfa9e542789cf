package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// listPage is how many machines one call asks for, where the provider can continue (PROV-10.6, 10.15).
const listPage = 5000

func newList(a *app.App) *cobra.Command {
	var states []string
	c := &cobra.Command{
		Use: "list ADDR", Args: cobra.ExactArgs(1), Short: "List the machines of a running provider",
		Example: "  bigfleet provider list 127.0.0.1:9000 --state idle,configured -o wide",
		RunE: func(c *cobra.Command, args []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return runList(ctx, a, args[0], states) })
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only these states: "+strings.Join(stateNames(), ", "))
	return a.Watchable(c)
}

func stateNames() []string {
	var out []string
	for n := int32(1); bigfleetv1alpha1.MachineState_name[n] != ""; n++ {
		out = append(out, stateName(bigfleetv1alpha1.MachineState(n)))
	}
	return out
}

func stateName(s bigfleetv1alpha1.MachineState) string {
	return output.Enum("MACHINE_STATE_", s.String())
}

func runList(ctx context.Context, a *app.App, addr string, names []string) error {
	filter := &bigfleetv1alpha1.ListFilter{MaxResults: listPage}
	for _, name := range names {
		i := slices.Index(stateNames(), strings.ToLower(name))
		if i < 0 {
			return exit.Usagef("--state %s: use one of %s", name, strings.Join(stateNames(), ", "))
		}
		filter.States = append(filter.States, bigfleetv1alpha1.MachineState(i+1))
	}
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	p, err := f.Provider(addr)
	if err != nil {
		return err
	}
	machines := map[string]*bigfleetv1alpha1.Machine{} // one that changed meanwhile comes again
	for first := true; ; first = false {
		bounded, cancel := f.Deadline(ctx)
		page, err := p.Machines.List(bounded, connect.NewRequest(filter))
		cancel()
		if err != nil {
			return exit.Of("listing the machines of the provider at "+addr, err)
		}
		if first && !page.Msg.GetComplete() {
			// A provider that does not message what a page is: its cursors may skip, so it is read at once (PROV-10.12).
			if filter.MaxResults == 0 || len(page.Msg.GetMachines()) < listPage {
				collect(machines, page.Msg)
				break
			}
			filter.MaxResults = 0
			continue
		}
		collect(machines, page.Msg)
		for _, id := range page.Msg.GetRemovedIds() {
			delete(machines, id)
		}
		if !page.Msg.GetMore() {
			break
		}
		filter.SinceRevision = page.Msg.GetRevision()
	}
	return a.Format.Write(a.Out, table(machines))
}

func collect(into map[string]*bigfleetv1alpha1.Machine, page *bigfleetv1alpha1.MachineList) {
	for _, m := range page.GetMachines() {
		into[m.GetId()] = m
	}
}

func table(machines map[string]*bigfleetv1alpha1.Machine) output.List {
	l := output.List{Columns: []output.Column{
		{Head: "NAME"}, {Head: "STATE"}, {Head: "CLUSTER"}, {Head: "TYPE"}, {Head: "ZONE"}, {Head: "CAPACITY"}, {Head: "PRICE"},
		{Head: "INTERRUPTION", Wide: true}, {Head: "ALLOCATABLE", Wide: true}, {Head: "HOST", Wide: true}, {Head: "ERROR", Wide: true},
	}}
	ids := make([]string, 0, len(machines))
	for id := range machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		m := machines[id]
		size := m.GetAllocatable().GetResources()
		if len(size) == 0 {
			size = m.GetResources().GetResources()
		}
		l.Names = append(l.Names, "machine/"+id)
		l.Items = append(l.Items, proto.Message(m))
		l.Rows = append(l.Rows, []string{
			id, stateName(m.GetState()), output.Dash(m.GetCluster()), m.GetInstanceType(), output.Dash(m.GetZone()),
			output.Enum("CAPACITY_TYPE_", m.GetCapacityType().String()), output.Dollars(m.GetPricePerHour()),
			fmt.Sprintf("%.3g/h", m.GetInterruptionProbability()), output.Vector(size), output.Dash(m.GetHost().GetRef()), output.Dash(m.GetLastError()),
		})
	}
	return l
}
