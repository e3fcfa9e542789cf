// Package plan is `bigfleet plan`: what the engine would do next, as things are or with edits. Nothing changes.
package plan

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

type flags struct {
	file   string
	edits  edits
	failOn []string
	settle bool
}

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use: "plan", Args: cobra.NoArgs,
		Short: "What would happen next, as things are or with edits",
		Long: "Runs the real engine on a copy of the shard's current snapshot. Without edits it shows what comes next, in dry run and pause too.\n" +
			"A file given with -f is a PlanRequest in YAML or JSON; flags add to it.",
		Example: "  bigfleet plan\n  bigfleet plan --scale red=2 --fail-on preempt,unmet\n  bigfleet plan -f edits.yaml",
		RunE:    func(c *cobra.Command, _ []string) error { return run(c.Context(), a, f) },
	}
	fs := c.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "edits: a PlanRequest in YAML or JSON; - reads standard input")
	f.edits.bind(fs)
	fs.StringSliceVar(&f.failOn, "fail-on", nil, "exit 4 when the plan holds one of preempt, reclaim, delete, provision, bootstrap, unmet")
	fs.BoolVar(&f.settle, "settle", false, "apply and plan again until nothing is left to do")
	return c
}

func run(ctx context.Context, a *app.App, f flags) error {
	req, err := request(a, f)
	if err != nil {
		return err
	}
	fl, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, fl, shards, "planning", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.PlanResponse, error) {
		got, err := s.Read.Plan(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var bad []string
	for i, p := range answers {
		if p == nil {
			continue
		}
		if a.Format.ForPeople() {
			say(a.Out, shards[i].Label(), *p)
		} else if err := a.Format.Message(a.Out, *p); err != nil {
			return err
		}
		bad = append(bad, matches(*p, f.failOn)...)
	}
	for _, w := range warnings(answers) {
		a.Notef("warning: %s", w)
	}
	if failed == nil && len(bad) > 0 {
		return &exit.Error{Code: exit.Problems, Reason: "fail_on", Say: "the plan holds " + strings.Join(bad, ", ")}
	}
	return failed
}

func request(a *app.App, f flags) (*bigfleetv1alpha1.PlanRequest, error) {
	req := &bigfleetv1alpha1.PlanRequest{}
	if f.file != "" {
		if err := read(a, f.file, req); err != nil {
			return nil, err
		}
	}
	if err := f.edits.apply(req); err != nil {
		return nil, err
	}
	req.Settle = req.GetSettle() || f.settle
	for _, w := range f.failOn {
		if w != "unmet" && bigfleetv1alpha1.ActionKind_value["ACTION_KIND_"+strings.ToUpper(w)] == 0 {
			return nil, exit.Usagef("--fail-on %s is unknown: use preempt, reclaim, delete, provision, bootstrap or unmet", w)
		}
	}
	return req, nil
}

// read decodes strictly: a misspelt field is an error here, though it is none on the wire (WIRE-4.7).
func read(a *app.App, file string, req *bigfleetv1alpha1.PlanRequest) error {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(a.In)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return exit.Usagef("edits: %v", err)
	}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err == nil {
		err = protojson.Unmarshal(asJSON, req)
	}
	if err != nil {
		return exit.Usagef("edits in %s are no PlanRequest: %v", file, err)
	}
	return nil
}

func warnings(answers []**bigfleetv1alpha1.PlanResponse) []string {
	var out []string
	for _, p := range answers {
		if p != nil {
			out = append(out, (*p).GetWarnings()...)
		}
	}
	return out
}

// matches names what --fail-on looks for and the plan holds.
func matches(p *bigfleetv1alpha1.PlanResponse, failOn []string) []string {
	var out []string
	for _, want := range failOn {
		n := 0
		if want == "unmet" {
			for _, c := range p.GetNeeds() {
				if c.GetAfter() != nil && !c.GetAfter().GetSatisfied() {
					n++
				}
			}
		} else {
			for _, r := range p.GetActions() {
				if output.Enum("ACTION_KIND_", r.GetKind().String()) == want {
					n++
				}
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, want))
		}
	}
	return out
}

// key identifies an action across two plans.
func key(r *bigfleetv1alpha1.DecisionRecord) string {
	return r.GetKind().String() + " " + r.GetMachineId() + " " + r.GetClusterId()
}

// say prints the actions, marking those that the edits add or take away, the needs that change, and the money.
func say(w io.Writer, shard string, p *bigfleetv1alpha1.PlanResponse) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("%s, snapshot of cycle %d:", shard, p.GetBaseCycle())
	before, after := map[string]bool{}, map[string]bool{}
	for _, r := range p.GetBaselineActions() {
		before[key(r)] = true
	}
	for _, r := range p.GetActions() {
		after[key(r)] = true
		mark := "+"
		if before[key(r)] {
			mark = " "
		}
		line("%s %s", mark, action(r))
	}
	for _, r := range p.GetBaselineActions() {
		if !after[key(r)] {
			line("- %s", action(r))
		}
	}
	if len(p.GetActions())+len(p.GetBaselineActions()) == 0 {
		line("  nothing to do")
	}
	for _, c := range p.GetNeeds() {
		line("~ need/%s: %s -> %s", name(c), verdict(c.GetBefore()), verdict(c.GetAfter()))
	}
	line("  %s -> %s", output.Dollars(p.GetCostPerHourBefore()), output.Dollars(p.GetCostPerHourAfter()))
}

func name(c *bigfleetv1alpha1.NeedChange) string {
	if c.GetAfter() != nil {
		return subject.NeedName(c.GetAfter())
	}
	return subject.NeedName(c.GetBefore())
}

func verdict(n *bigfleetv1alpha1.NeedView) string {
	if n == nil {
		return "absent"
	}
	out := output.Enum("NEED_STATE_", n.GetStatus().String())
	if n.GetDetailText() != "" {
		out += " (" + n.GetDetailText() + ")"
	}
	return out
}

func action(r *bigfleetv1alpha1.DecisionRecord) string {
	parts := []string{fmt.Sprintf("%-9s", output.Enum("ACTION_KIND_", r.GetKind().String())), r.GetMachineId()}
	if r.GetClusterId() != "" {
		parts = append(parts, "cluster "+r.GetClusterId())
	}
	if r.GetCause() != "" {
		parts = append(parts, r.GetCause())
	}
	if r.GetPricePerHour() != 0 {
		parts = append(parts, output.Dollars(r.GetPricePerHour()))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "  ")
}
