// Package wait is `bigfleet wait --for CONDITION [SUBJECT]`: it ends when something has become true, for scripts.
package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

const (
	askEvery      = 200 * time.Millisecond
	withinDefault = 5 * time.Minute
)

// condition is one thing to wait for. holds says whether it is true, and how things stand for people.
type condition struct {
	name, about string
	subjects    []subject.Kind // it may be about; none means the whole fleet
	holds       func(ctx context.Context, a *app.App, s *subject.Subject) (bool, string, error)
}

func conditions() []condition {
	return []condition{
		{"ready", "every shard is ready", nil, ready},
		{"met", "every need is met, or those of need/CLUSTER/ROW or cluster/ID", []subject.Kind{subject.Need, subject.Cluster}, satisfied},
		{"drained", "machine/ID no longer serves a cluster", []subject.Kind{subject.Machine}, drained},
		{"idle", "no action is in flight or queued", nil, idle},
		{"leader", "a coordinator leads", nil, led},
		{"no-moves", "no move between shards is open", nil, noMoves},
	}
}

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var what string
	var within time.Duration
	var names []string
	var help strings.Builder
	help.WriteString("Exits with 0 when the condition holds, and with 4 if it does not hold in time:\n\n")
	for _, c := range conditions() {
		names = append(names, c.name)
		fmt.Fprintf(&help, "  %-10s %s\n", c.name, c.about)
	}
	c := &cobra.Command{
		Use: "wait --for CONDITION [SUBJECT]", Args: cobra.MaximumNArgs(2), Short: "Wait for a condition, for scripts", Long: help.String(),
		Example:           "  bigfleet wait --for ready\n  bigfleet wait --for met cluster/red --timeout 2m\n  bigfleet wait --for drained machine/m-0001",
		ValidArgsFunction: a.CompleteSubjects("need/", "machine/", "cluster/"),
		RunE: func(c *cobra.Command, args []string) error {
			i := slices.Index(names, what)
			if what == "satisfied" { // what scripts call it that are older than the word of the tables
				i = slices.Index(names, "met")
			}
			if i < 0 {
				return exit.Usagef("--for %s is unknown: use one of %s", what, strings.Join(names, ", "))
			}
			if within == 0 {
				return exit.Usagef("--timeout 0s: it must be more than 0")
			}
			cond := conditions()[i]
			cond.name = what
			s, err := about(cond, args)
			if err != nil {
				return err
			}
			return run(c.Context(), a, cond, s, within)
		},
	}
	c.Flags().StringVar(&what, "for", "", "the condition: "+strings.Join(names, ", "))
	c.Flags().DurationVar(&within, "timeout", withinDefault, "give up after this long")
	_ = c.MarkFlagRequired("for") // fails only for an unknown flag
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func about(c condition, args []string) (*subject.Subject, error) {
	if len(args) == 0 {
		if c.name == "drained" {
			return nil, exit.Usagef("--for drained needs a machine: write machine/ID")
		}
		return nil, nil
	}
	if len(c.subjects) == 0 {
		return nil, exit.Usagef("--for %s applies to the whole fleet and takes no subject", c.name)
	}
	s, err := subject.Of(args, "", c.subjects...)
	if err != nil && slices.Contains(c.subjects, subject.Need) && subject.InCluster(strings.Split(args[0], "/")[0]) != "" {
		err = exit.Usagef("--for %s takes need/CLUSTER/ROW or cluster/ID: `bigfleet explain %s` names the need", c.name, strings.Join(args, " "))
	}
	return &s, err
}

func run(ctx context.Context, a *app.App, c condition, s *subject.Subject, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	last := ""
	var missing *exit.Error // what is waited for is not there at all
	for {
		done, how, err := c.holds(ctx, a, s)
		if done && err == nil {
			if !a.Format.ForPeople() {
				return a.Format.Value(a.Out, map[string]string{"condition": c.name, "say": how})
			}
			_, err := fmt.Fprintln(a.Out, how)
			return err
		}
		var known *exit.Error
		if err != nil && (!errors.As(err, &known) || known.Code != exit.Unreachable && (known.Code != exit.NotFound || c.name == "drained")) && ctx.Err() == nil {
			return err // waiting does not put it right
		}
		if ctx.Err() == nil {
			missing = nil
			if known != nil && known.Code == exit.NotFound {
				missing = known
			}
		}
		if err != nil && ctx.Err() == nil {
			how = err.Error()
		}
		if how != "" && how != last && ctx.Err() == nil {
			a.Notef("%s", how)
			last = how
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			if missing != nil {
				return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("not %s after %s: %s", c.name, within, missing.Message), Hint: missing.Hint}
			}
			return &exit.Error{Code: exit.Problems, Reason: "timeout", Message: fmt.Sprintf("not %s after %s: %s", c.name, within, last), Hint: "--timeout waits longer"}
		case <-time.After(askEvery):
		}
	}
}

// statuses asks every shard.
func statuses(ctx context.Context, a *app.App) ([]*bigfleetv1alpha1.GetStatusResponse, error) {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return nil, err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the status", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.GetStatusResponse, error) {
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var out []*bigfleetv1alpha1.GetStatusResponse
	for _, s := range answers {
		if s != nil {
			out = append(out, *s)
		}
	}
	return out, failed
}

func ready(ctx context.Context, a *app.App, _ *subject.Subject) (bool, string, error) {
	all, err := statuses(ctx, a)
	for _, s := range all {
		if !s.GetReady() {
			return false, s.GetShardId() + " is not ready: " + strings.Join(s.GetNotReadyReasons(), "; "), err
		}
	}
	return err == nil, output.Count(len(all), "shard") + " ready", err
}

func idle(ctx context.Context, a *app.App, _ *subject.Subject) (bool, string, error) {
	all, err := statuses(ctx, a)
	n := int32(0)
	for _, s := range all {
		for _, m := range []map[string]int32{s.GetInFlight(), s.GetWaiting()} {
			for _, v := range m {
				n += v
			}
		}
		if s.GetCycle() == 0 {
			return false, s.GetShardId() + " has not evaluated yet", err
		}
	}
	if n > 0 {
		return false, fmt.Sprintf("%d %s in flight or queued", n, output.Are(int(n), "action")), err
	}
	return err == nil, "nothing is in flight", err
}

func satisfied(ctx context.Context, a *app.App, s *subject.Subject) (bool, string, error) {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return false, "", err
	}
	req := &bigfleetv1alpha1.InspectNeedsRequest{}
	if s != nil && s.Kind == subject.Cluster {
		req.ClusterId = s.Name
	} else if s != nil {
		req.ClusterId = s.Scope
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading needs", func(ctx context.Context, sh fleet.Shard) ([]*bigfleetv1alpha1.NeedView, error) {
		return needs(ctx, sh, req)
	})
	met, all := 0, 0
	for _, rows := range answers {
		if rows == nil {
			continue
		}
		for _, n := range *rows {
			if s != nil && s.Kind == subject.Need && !strings.HasPrefix(subject.NeedName(n), s.Scope+"/"+s.Name) {
				continue
			}
			all++
			if n.GetStatus() == bigfleetv1alpha1.NeedState_NEED_STATE_MET {
				met++
			}
		}
	}
	if s != nil && all == 0 {
		if failed == nil {
			failed = &exit.Error{Code: exit.NotFound, Message: "no shard knows " + s.String() + " yet", Hint: "`bigfleet get " + string(s.Kind) + "s` lists them"}
		}
		return false, "", failed
	}
	return failed == nil && met == all, fmt.Sprintf("%d of %d needs are met", met, all), failed
}

func needs(ctx context.Context, sh fleet.Shard, req *bigfleetv1alpha1.InspectNeedsRequest) (out []*bigfleetv1alpha1.NeedView, err error) {
	stream, err := sh.Read.InspectNeeds(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if h := stream.Msg().GetHeader(); h != nil && h.GetCycle() == 0 {
			return nil, &exit.Error{Code: exit.Unreachable, Message: sh.Label() + " has not evaluated yet"}
		}
		if n := stream.Msg().GetNeed(); n != nil {
			out = append(out, n)
		}
	}
	return out, stream.Err()
}

func drained(ctx context.Context, a *app.App, s *subject.Subject) (bool, string, error) {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return false, "", err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading "+s.String(), func(ctx context.Context, sh fleet.Shard) (*bigfleetv1alpha1.MachineView, error) {
		got, err := sh.Read.GetMachine(ctx, connect.NewRequest(&bigfleetv1alpha1.GetMachineRequest{MachineId: s.Name}))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return got.Msg.GetMachine(), nil
	})
	for _, m := range answers {
		if m == nil || *m == nil {
			continue
		}
		state := output.Enum("MACHINE_STATE_", (*m).GetMachine().GetState().String())
		switch (*m).GetMachine().GetState() {
		case bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED, bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING, bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING:
			return false, s.Name + " is " + state, failed
		}
		return true, s.Name + " is " + state, nil
	}
	if failed != nil {
		return false, "", failed
	}
	if known, err := inLog(ctx, f, shards, s.Name); !known || err != nil {
		return false, "", cmp.Or(err, fleet.Known(ctx, f, shards, "machine", s.Name))
	}
	return true, s.Name + " is gone", nil
}

// inLog reports whether a shard's log has something about a machine: one that is gone was there, and one that is misspelled was not.
func inLog(ctx context.Context, f *fleet.Fleet, shards []fleet.Shard, id string) (bool, error) {
	answers, failed := fleet.Each(ctx, f, shards, "reading the history of machine/"+id, func(ctx context.Context, sh fleet.Shard) (bool, error) {
		got, err := sh.Read.GetMachineHistory(ctx, connect.NewRequest(&bigfleetv1alpha1.GetMachineHistoryRequest{
			Subject: &bigfleetv1alpha1.GetMachineHistoryRequest_MachineId{MachineId: id}}))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return false, nil
		}
		return err == nil && len(got.Msg.GetRecords()) > 0, err
	})
	for _, known := range answers {
		if known != nil && *known {
			return true, nil
		}
	}
	return false, failed
}

func led(ctx context.Context, a *app.App, _ *subject.Subject) (bool, string, error) {
	f, err := a.Fleet()
	if err != nil {
		return false, "", err
	}
	who := ""
	err = f.Leader(ctx, "looking for the leader", func(ctx context.Context, c fleet.Coordinator) error {
		_, err := c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
		who = c.Address
		return err
	})
	return err == nil, "the coordinator at " + who + " leads", err
}

func noMoves(ctx context.Context, a *app.App, _ *subject.Subject) (bool, string, error) {
	f, err := a.Fleet()
	if err != nil {
		return false, "", err
	}
	open := 0
	err = f.Leader(ctx, "listing moves", func(ctx context.Context, c fleet.Coordinator) error {
		got, err := c.Admin.ListMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMovesRequest{OpenOnly: true}))
		if err == nil {
			open = len(got.Msg.GetMoves())
		}
		return err
	})
	if open > 0 {
		return false, fmt.Sprintf("%d %s open", open, output.Are(open, "move")), err
	}
	return err == nil, "no move is open", err
}
