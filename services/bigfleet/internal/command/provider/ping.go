package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// pingEvery is how often --wait asks again.
const pingEvery = 200 * time.Millisecond

func newPing(a *app.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use: "ping ADDR", Args: cobra.ExactArgs(1), Short: "Check that a provider answers, and show what it reports about itself",
		Example: "  bigfleet provider ping 127.0.0.1:9000 --wait 30s",
		RunE:    func(c *cobra.Command, args []string) error { return runPing(c.Context(), a, args[0], wait) },
	}
	c.Flags().DurationVar(&wait, "wait", 0, "retry until it answers, for at most this long")
	return c
}

// answer is what a provider said.
type answer struct {
	*bigfleetv1alpha1.GetProviderResponse
	described bool // false: a provider without ProviderAdmin
	sample    *bigfleetv1alpha1.MachineList
	took      time.Duration // of the List call
}

func runPing(ctx context.Context, a *app.App, addr string, wait time.Duration) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	p, err := f.Provider(addr)
	if err != nil {
		return err
	}
	until := time.Now().Add(wait)
	got, err := ask(ctx, f, p)
	for err != nil && time.Now().Before(until) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(pingEvery):
		}
		got, err = ask(ctx, f, p)
	}
	if err != nil {
		return exit.Of("asking the provider at "+addr, err)
	}
	if !a.Format.ForPeople() {
		return a.Format.Message(a.Out, got.GetProviderResponse)
	}
	return got.show(a, addr)
}

// ask reads a machine, which a shard does first of all, and then the description.
func ask(ctx context.Context, f *fleet.Fleet, p fleet.Provider) (answer, error) {
	ctx, cancel := f.Deadline(ctx)
	defer cancel()
	begin := time.Now()
	list, err := p.Machines.List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{MaxResults: 1}))
	if err != nil {
		return answer{}, err
	}
	got := answer{sample: list.Msg, took: time.Since(begin), GetProviderResponse: &bigfleetv1alpha1.GetProviderResponse{}}
	described, err := p.Admin.GetProvider(ctx, connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{}))
	switch {
	case err == nil:
		got.described, got.GetProviderResponse = true, described.Msg
	case connect.CodeOf(err) != connect.CodeUnimplemented && connect.CodeOf(err) != connect.CodeNotFound:
		return answer{}, err
	}
	return got, nil
}

func (g answer) show(a *app.App, addr string) error {
	if !g.described {
		machines := "it has no machines"
		if len(g.sample.GetMachines()) > 0 {
			machines = "it has machines, such as " + g.sample.GetMachines()[0].GetId()
		}
		_, err := fmt.Fprintf(a.Out, "A provider answers at %s (List: %s); %s. It does not implement GetProvider.\n", addr, round(g.took), machines)
		return err
	}
	lines := []string{
		fmt.Sprintf("Provider %s answers at %s (List: %s).", g.GetName(), addr, round(g.took)),
		fmt.Sprintf("version    %s", output.Dash(g.GetVersion())),
		fmt.Sprintf("machines   %d", g.GetMachines()),
		fmt.Sprintf("mutations  %s", paused(g.GetMutations())),
		fmt.Sprintf("readiness  %s", readiness(g.GetReadinessMode())),
		fmt.Sprintf("delete     %s", deletes(g.GetDeletable())),
		fmt.Sprintf("store      %s", output.Dash(g.GetStoreId())),
		fmt.Sprintf("started    %s", output.Time(g.GetStartedAtUnixNanos())),
	}
	_, err := fmt.Fprintln(a.Out, strings.Join(lines, "\n"))
	return err
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func paused(m bigfleetv1alpha1.MutationMode) string {
	if m == bigfleetv1alpha1.MutationMode_MUTATION_MODE_PAUSED {
		return "paused by an operator"
	}
	return "served"
}

// readiness says when a provider calls a machine configured.
func readiness(mode string) string {
	switch mode {
	case "nodes":
		return "checked in the cluster: the Node must be Ready"
	case "substrate":
		return "as its infrastructure reports it"
	case "none":
		return "not checked"
	}
	return output.Dash(mode)
}

func deletes(classes []bigfleetv1alpha1.CapacityType) string {
	if len(classes) == 0 {
		return "not supported: hosts are kept"
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = output.Enum("CAPACITY_TYPE_", c.String())
	}
	return strings.Join(names, ", ")
}
