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
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// what is planned: edits from a file and from flags.
type what struct {
	file   string
	edits  edits
	failOn []string
	settle bool
}

func (w *what) bind(fs *pflag.FlagSet) {
	fs.StringVarP(&w.file, "file", "f", "", "edits: a PlanRequest in YAML or JSON; - reads standard input")
	w.edits.bind(fs)
	fs.StringSliceVar(&w.failOn, "fail-on", nil, "exit with 4 if the plan contains one of these: preempt, reclaim, delete, provision, bootstrap, unmet")
	fs.BoolVar(&w.settle, "settle", false, "apply the plan and plan again, until nothing changes")
}

func bindPolicy(fs *pflag.FlagSet, to *map[string]string, when string) {
	fs.StringToStringVar(to, "policy", nil, when+"override a constant of the engine: NAME=VALUE, for example JoinTimeout=5m or Sharing=false; repeatable")
}

type flags struct {
	what
	record shard.ReplayConfig // Dir is empty when a running shard is asked
}

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use: "plan", Args: cobra.NoArgs,
		Short: "Show what would happen next, with or without edits",
		Long: "Runs the real engine on a copy of the shard's current snapshot. Without edits it shows the next actions, even in dry run or during a pause.\n" +
			"A file given with -f is a PlanRequest in YAML or JSON; flags add to it. For example:\n\n" +
			"  demand:\n" +
			"  - {clusterId: red, scale: 2}\n" +
			"  - {clusterId: blue, add: {aggregateResources: {cpu: \"64\"}, minUnit: {cpu: \"4\"}, priority: 10}}\n" +
			"  machines:\n" +
			"  - {price: {instanceType: m.8x, factor: 3}}\n" +
			"  - {stockOut: {instanceType: m.8x, zone: demo-1a}}\n" +
			"  - {drainZone: demo-1b}\n" +
			"  settle: true\n\n" +
			"With --record it needs no server: it reads a shard's --data-dir, or the decision log in it, and plans from the end of the log,\n" +
			"or from an earlier step with --stop-at.",
		Example: "  bigfleet plan\n  bigfleet plan --scale red=2 --fail-on preempt,unmet\n  bigfleet plan -f edits.yaml\n" +
			"  bigfleet plan --record ./data --stop-at 1000 --price m.8x=0.5 --policy JoinTimeout=5m",
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), a, f) },
	}
	fs := c.Flags()
	f.what.bind(fs)
	fs.StringVar(&f.record.Dir, "record", "", "plan from a recorded decision log in this directory instead of a running shard")
	fs.Int64Var(&f.record.StopAt, "stop-at", 0, "with --record: plan from before this step; 0 means from the end")
	fs.Int64Var(&f.record.Epoch, "epoch", 0, "with --record: epoch of the process that wrote the log; 0 means the newest")
	bindPolicy(fs, &f.record.Policy, "with --record: ")
	return c
}

func run(ctx context.Context, a *app.App, f flags) error {
	if f.record.Dir == "" && (f.record.StopAt != 0 || f.record.Epoch != 0 || len(f.record.Policy) > 0) {
		return exit.Usagef("--stop-at, --epoch and --policy need a decision log: name the --data-dir of a shard with --record")
	}
	req, err := f.request(a)
	if err != nil {
		return err
	}
	var answers []answer
	var failed error
	if f.record.Dir != "" {
		answers, failed = recorded(ctx, a, f.record, req)
	} else {
		answers, failed = live(ctx, a, req)
	}
	if a.Format.ForPeople() && !req.GetSettle() && releases(answers) {
		defer a.Notef("a machine that is released costs until its hold ends; --settle shows what is left then")
	}
	return show(a, answers, f.failOn, failed)
}

// show prints plans, and fails for what --fail-on names.
func show(a *app.App, answers []answer, failOn []string, failed error) error {
	var bad []string
	list := output.List{Say: history.Planned}
	for _, p := range answers {
		if a.Format.ForPeople() {
			say(a.Out, p.of, p.PlanResponse)
		}
		list.Items, list.Shards = append(list.Items, p.PlanResponse), append(list.Shards, p.of)
		bad = append(bad, matches(p.PlanResponse, failOn)...)
	}
	if len(answers) > 0 && !a.Format.ForPeople() {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	for _, w := range common(answers) {
		a.Notef("warning: %s", w)
	}
	if failed != nil {
		return failed
	}
	if without := void(common(answers)); len(without) > 0 {
		return &exit.Error{Code: exit.NotFound, Reason: "edit_without_effect", Message: "an edit has no effect: " + strings.Join(without, "; "),
			Hint: "`bigfleet get` lists clusters, machines and needs"}
	}
	return failing(bad)
}

// common are the warnings of all the plans: what one shard has, the others do not know.
func common(answers []answer) (out []string) {
	for i, p := range answers {
		if i == 0 {
			out = slices.Clone(p.GetWarnings())
		}
		out = slices.DeleteFunc(out, func(w string) bool { return !slices.Contains(p.GetWarnings(), w) })
	}
	return out
}

// void are the warnings about edits that name nothing: "no such machine: m-1". The others are about the plan as a whole, for
// example that the shard is paused, and plans work there too (OPS-4.16).
func void(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return !strings.HasPrefix(w, "no ") })
}

func failing(bad []string) error {
	if len(bad) == 0 {
		return nil
	}
	return &exit.Error{Code: exit.Problems, Reason: "fail_on", Message: "the plan contains " + strings.Join(bad, ", ")}
}

// answer is a plan and whose it is.
type answer struct {
	*bigfleetv1alpha1.PlanResponse
	of string
}

// live asks every shard.
func live(ctx context.Context, a *app.App, req *bigfleetv1alpha1.PlanRequest) ([]answer, error) {
	fl, shards, err := a.Shards(ctx)
	if err != nil {
		return nil, err
	}
	parts, err := split(ctx, a, fl, shards, req)
	if err != nil {
		return nil, err
	}
	got, failed := fleet.Each(ctx, fl, shards, "planning", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.PlanResponse, error) {
		part := parts[slices.IndexFunc(shards, func(o fleet.Shard) bool { return o.Label() == s.Label() })]
		got, err := s.Read.Plan(ctx, connect.NewRequest(part))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var out []answer
	for i, p := range got {
		if p != nil {
			out = append(out, answer{*p, shards[i].Label()})
		}
	}
	return out, failed
}

// split is what each shard is asked: demand that is added goes to the shard of its cluster alone, or it would be bought by each. Of a cluster
// that none serves it goes to the first: which shard gets a new cluster is decided when it comes.
func split(ctx context.Context, a *app.App, fl *fleet.Fleet, shards []fleet.Shard, req *bigfleetv1alpha1.PlanRequest) ([]*bigfleetv1alpha1.PlanRequest, error) {
	parts := slices.Repeat([]*bigfleetv1alpha1.PlanRequest{req}, len(shards))
	if len(shards) < 2 {
		return parts, nil
	}
	for i := range parts {
		parts[i] = proto.CloneOf(req)
		parts[i].Demand = nil
	}
	for _, d := range req.GetDemand() {
		takes := func(int) bool { return true }
		if d.GetAdd() != nil || d.GetReplace() != nil {
			home, err := fleet.Home(ctx, fl, shards, d.GetClusterId())
			if err != nil {
				return nil, err
			}
			if len(home) == 0 {
				home = []int{0}
				a.Notef("no shard serves cluster %s: its demand is planned on %s", d.GetClusterId(), shards[0].Label())
			}
			takes = func(i int) bool { return i == home[0] }
		}
		for i := range parts {
			if takes(i) {
				parts[i].Demand = append(parts[i].Demand, d)
			}
		}
	}
	return parts, nil
}

// recorded asks a decision log.
func recorded(ctx context.Context, a *app.App, c shard.ReplayConfig, req *bigfleetv1alpha1.PlanRequest) ([]answer, error) {
	defer a.Waits("replaying " + c.Dir + " is taking a while …")()
	c.Plan = req
	got, err := shard.Replay(ctx, c, io.Discard)
	if err != nil {
		return nil, LogError(c.Dir, err)
	}
	if d := got.Damage; d != nil && !got.Stopped {
		a.Notef("warning: %s ends at byte %d, entry %d: %s; the plan is from the moment before", d.File, d.Offset, d.Entry, d.Why)
	}
	if got.Plan == nil {
		return nil, errTooEarly
	}
	return []answer{ofLog(&got)}, nil
}

func (w *what) request(a *app.App) (*bigfleetv1alpha1.PlanRequest, error) {
	req := &bigfleetv1alpha1.PlanRequest{}
	if w.file != "" {
		if err := read(a, w.file, req); err != nil {
			return nil, err
		}
	}
	if err := w.edits.apply(req); err != nil {
		return nil, err
	}
	req.Settle = req.GetSettle() || w.settle
	for _, kind := range w.failOn {
		if kind != "unmet" && bigfleetv1alpha1.ActionKind_value["ACTION_KIND_"+strings.ToUpper(kind)] == 0 {
			return nil, exit.Usagef("--fail-on %s is unknown: use preempt, reclaim, delete, provision, bootstrap or unmet", kind)
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
		return exit.Usagef("edits in %s are not a PlanRequest: %v", file, err)
	}
	return nil
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
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(w, output.Line(format, args...)) }
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
		from, to := verdict(c.GetBefore()), verdict(c.GetAfter())
		if from == to { // then how much of it is covered is what changes, if anything that people see
			was, is := c.GetBefore().GetCoveragePerMille(), c.GetAfter().GetCoveragePerMille()
			if was == is {
				continue
			}
			from, to = fmt.Sprintf("%s, %.1f%% met", from, float64(was)/10), fmt.Sprintf("%.1f%%", float64(is)/10)
		}
		line("~ need/%s: %s -> %s", name(c), from, to)
	}
	line("  %s -> %s", output.Dollars(p.GetCostPerHourBefore()), output.Dollars(p.GetCostPerHourAfter()))
}

// releases reports whether a plan releases machines. They are idle then, and cost until their hold ends.
func releases(answers []answer) bool {
	for _, p := range answers {
		for _, r := range p.GetActions() {
			if r.GetKind() == bigfleetv1alpha1.ActionKind_ACTION_KIND_RECLAIM {
				return true
			}
		}
	}
	return false
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
	if d := n.GetDetailText(); d != "" && !strings.EqualFold(strings.TrimSuffix(d, "."), out) {
		out += " (" + n.GetDetailText() + ")"
	}
	return out
}

func action(r *bigfleetv1alpha1.DecisionRecord) string {
	parts := []string{fmt.Sprintf("%-9s", output.Enum("ACTION_KIND_", r.GetKind().String())), r.GetMachineId()}
	if r.GetClusterId() != "" {
		parts = append(parts, "cluster "+r.GetClusterId())
	}
	if r.GetPricePerHour() != 0 && r.GetCause() != "phase1.speculative" { // of a purchase the sentence has the price
		parts = append(parts, output.Dollars(r.GetPricePerHour()))
	}
	parts = append(parts, history.Planned(r))
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "  ")
}
