package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	world "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
)

// NewDemo returns `bigfleet demo`, which drives a running `up` (OPS-5.5).
func NewDemo(a *app.App) *cobra.Command {
	var at string
	var long strings.Builder
	long.WriteString("Plays a demo in a running `bigfleet up`: names what to watch, runs the steps, and ends with the resulting numbers.\n\n")
	for _, d := range world.Demos() {
		_, _ = fmt.Fprintf(&long, "  %-28s %s\n", strings.TrimSpace(d.Name+" "+words(d.Args)), d.About)
	}
	cmd := &cobra.Command{
		Use: "demo NAME [CLUSTER...]", Args: cobra.MinimumNArgs(1), ValidArgs: world.DemoNames(),
		Short: "Play a demo in a running `bigfleet up`", Long: strings.TrimSpace(long.String()),
		Example: "  bigfleet demo critical\n  bigfleet demo shift red blue\n  bigfleet demo reset",
		RunE:    func(cmd *cobra.Command, args []string) error { return play(cmd.Context(), a, at, args[0], args[1:]) },
	}
	cmd.Flags().StringVar(&at, "at", world.DefaultDemoListen, "address of the demo port of bigfleet up, if it is not the default")
	return cmd
}

func words(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return "[" + strings.Join(args, "] [") + "]"
}

// numbers is what a story caused.
type numbers struct {
	Seconds     float64        `json:"seconds"`
	Actions     map[string]int `json:"actions"`   // in the clusters that it is about
	Elsewhere   map[string]int `json:"elsewhere"` // meanwhile, in the others
	RunBefore   int            `json:"podsRunBefore"`
	PodsRun     int            `json:"podsRun"`
	PodsWait    int            `json:"podsWait"`
	UnmetBefore int            `json:"needsUnmetBefore"`
	NeedsUnmet  int            `json:"needsUnmet"`
	SpendBefore float64        `json:"spendBefore"`
	SpendAfter  float64        `json:"spendAfter"`
}

func play(ctx context.Context, a *app.App, at, story string, args []string) error {
	if !slices.Contains(world.DemoNames(), story) {
		return exit.Usagef("there is no demo %q: use one of %s", story, strings.Join(world.DemoNames(), ", "))
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		return exit.Usagef("--at %s: want host:port", at)
	}
	body, err := json.Marshal(map[string]any{"story": story, "args": args})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at, bytes.NewReader(body))
	if err != nil {
		return exit.Usagef("--at %s: %v", at, err)
	}
	request.Header.Set(world.DemoHeader, "1")
	answer, err := new(http.Client).Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &exit.Error{Code: exit.Unreachable, Reason: "no_connection", Message: "no `bigfleet up` answers at " + at, Hint: "Run `bigfleet up` in another terminal; --at names another address", Err: err}
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // what came is what can be said
		code := exit.Usage
		if answer.StatusCode == http.StatusConflict {
			code = exit.Refused
		}
		return &exit.Error{Code: code, Message: strings.TrimSpace(string(text))}
	}
	return follow(ctx, a, answer.Body)
}

// follow shows a story as it continues, and its numbers at the end.
func follow(ctx context.Context, a *app.App, body io.Reader) error {
	lines := json.NewDecoder(body)
	for {
		var line struct {
			At      float64
			Message string `json:"say"`
			Numbers *numbers
			Error   string
		}
		switch err := lines.Decode(&line); {
		case err != nil && ctx.Err() != nil:
			a.Notef("interrupted: `bigfleet demo reset` restores the initial state")
			return ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return &exit.Error{Code: exit.Unreachable, Message: "`bigfleet up` ended during the demo"}
		case err != nil:
			return &exit.Error{Code: exit.Failed, Message: "the answer cannot be read: " + err.Error(), Err: err}
		case line.Error != "":
			return &exit.Error{Code: exit.Failed, Message: line.Error, Hint: "`bigfleet demo reset` restores the initial state"}
		case line.Numbers != nil:
			return line.Numbers.print(a)
		}
		a.Notef("%6.1fs  %s", line.At, line.Message)
	}
}

func (n *numbers) print(a *app.App) error {
	if !a.Format.ForPeople() {
		return a.Format.Value(a.Out, n)
	}
	done := actions(n.Actions)
	if done == "" {
		done = "no action"
	}
	if meanwhile := actions(n.Elsewhere); meanwhile != "" {
		done += " (elsewhere " + meanwhile + ")"
	}
	_, err := fmt.Fprintf(a.Out, "in %.1f s: %s; %d Pods run, %d before, %d wait; %s unmet, %d before; spend %s, %s before\n", n.Seconds, done,
		n.PodsRun, n.RunBefore, n.PodsWait, output.Count(n.NeedsUnmet, "need"), n.UnmetBefore, output.Dollars(n.SpendAfter), output.Dollars(n.SpendBefore))
	return err
}

func actions(of map[string]int) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%d %s", of[kind], kind))
	}
	return strings.Join(out, ", ")
}
