package up

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

const (
	viewEvery  = 500 * time.Millisecond
	firstEvery = 50 * time.Millisecond // until the first machine is placed, which is a figure of its own
	viewLines  = 10                    // of what happened, under the picture
	viewFewest = 3                     // of them on a terminal that is too small for everything
	barWidth   = 40
	besideBar  = 65 // columns that the words of a bar's line take
)

// view shows the world: a repainted picture on a terminal, lines on change elsewhere.
type view struct {
	out    io.Writer
	paint  bool // repaint with escape sequences
	start  time.Time
	colour bool
	title  string
	tries  []string                    // commands for another terminal
	with   string                      // what each of them needs beside it
	size   func() (columns, lines int) // of the terminal; nil or 0 means large enough

	mu       sync.Mutex
	messages []string
	where    [][2]string // what stays under the picture: said lines scroll away
	last     string
	placed   bool // a machine serves a cluster
}

func (v *view) log(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs  %s", time.Since(v.start).Seconds(), fmt.Sprintf(format, args...))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.messages = append(v.messages, line)
	if !v.paint {
		_, _ = fmt.Fprintln(v.out, line)
	}
}

// keep shows what is needed as long as the world runs, and what people copy of it.
func (v *view) keep(message, copied string) {
	if !v.paint {
		v.log("%s %s", message, copied)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.where = append(v.where, [2]string{message, copied})
}

// frame is what is seen at one moment.
type frame struct {
	Status   *bigfleetv1alpha1.GetStatusResponse // of all shards; nil while none answers
	Gone     []string                            // shards that were stopped
	Late     []string                            // shards that do not answer in time
	Clusters []clusterFrame
}

type clusterFrame struct {
	ID                       string
	Running, Starting, Waits int
	Nodes, Leaving           int
	Away                     bool // its API server does not answer
}

// missing is how many clusters no shard hears.
func (f *frame) missing() int { return max(0, len(f.Clusters)-int(f.Status.GetSessions())) }

// restless says that something moves soon although the picture stands: an operator is about to connect again, or machines that
// are unneeded wait for the reclaim budget, which refills by itself.
func (f *frame) restless() bool {
	return f.Status != nil && (f.missing() > 0 || f.Status.GetWaiting()["ACTION_KIND_RECLAIM"] > 0)
}

// look gathers a frame. The clusters are read from their stores, which makes no call.
func (w *World) look(ctx context.Context) frame {
	var f frame
	f.Status, f.Gone, f.Late = w.lookAtShards(ctx)
	for _, c := range w.Clusters {
		f.Clusters = append(f.Clusters, c.look())
	}
	return f
}

func (c *Cluster) look() clusterFrame {
	if c.sim == nil {
		if seen := c.seen.Load(); seen != nil {
			return *seen
		}
		return clusterFrame{ID: c.ID(), Away: true}
	}
	out := clusterFrame{ID: c.ID()}
	pods, _, _ := c.Store().List(kubesim.Pods, kubesim.Filter{Namespace: namespace})
	for _, p := range pods {
		spec, _ := p.Object["spec"].(map[string]any)
		status, _ := p.Object["status"].(map[string]any)
		switch {
		case status["phase"] == string(corev1.PodRunning):
			out.Running++
		case spec["nodeName"] == nil || spec["nodeName"] == "":
			out.Waits++
		default:
			out.Starting++
		}
	}
	nodes, _, _ := c.Store().List(kubesim.Nodes, kubesim.Filter{})
	for _, n := range nodes {
		out.Nodes++
		if spec, _ := n.Object["spec"].(map[string]any); spec["unschedulable"] == true {
			out.Leaving++
		}
	}
	return out
}

// run shows frames until ctx ends.
func (v *view) run(ctx context.Context, w *World) {
	shown := time.Time{}
	every := firstEvery
	fresh := false // the shard was seen without a machine in use: --data-dir may bring some from before
	for {
		f := w.look(ctx)
		switch serving := f.Status.GetMachinesByState()[configured]; {
		case v.placed || f.Status == nil || !f.Status.GetReady():
		case serving == 0:
			fresh = true
		case fresh:
			v.placed, every = true, viewEvery
			if len(w.cfg.Targets) > 0 { // demand came when somebody made it
				v.log("the first machine is placed")
				break
			}
			v.log("the first machine is placed %.1f s after the start", time.Since(v.start).Seconds())
		default:
			v.placed, every = true, viewEvery
			v.log("%s in service from an earlier run", output.Count(int(serving), "machine"))
		}
		if time.Since(shown) >= viewEvery {
			shown = time.Now()
			v.show(f)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

var configured = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED.String()

func (v *view) show(f frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.paint {
		_, _ = fmt.Fprint(v.out, "\x1b[H\x1b[2J", v.picture(f))
		return
	}
	if line := summary(f); line != v.last {
		v.last = line
		_, _ = fmt.Fprintf(v.out, "%6.1fs  %s\n", time.Since(v.start).Seconds(), line)
	}
}

// summary is one line for logs and pipes.
func summary(f frame) string {
	var parts []string
	for _, c := range f.Clusters {
		if c.Away {
			parts = append(parts, c.ID+" does not answer")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %d/%d Pods on %s", c.ID, c.Running, c.Running+c.Starting+c.Waits, output.Count(c.Nodes, "Node")))
	}
	if f.Status == nil {
		return strings.Join(append(parts, "shard down"), " | ")
	}
	if len(f.Gone) > 0 {
		parts = append(parts, strings.Join(f.Gone, ", ")+" away")
	}
	return strings.Join(append(parts, "machines "+states(f.Status), fmt.Sprintf("%d of %d needs unmet", f.Status.GetUnsatisfiedNeeds(), f.Status.GetNeeds()),
		output.Dollars(f.Status.GetCostPerHour())), " | ")
}

func states(s *bigfleetv1alpha1.GetStatusResponse) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(s.GetMachinesByState())) {
		if n := s.GetMachinesByState()[k]; n != 0 {
			out = append(out, fmt.Sprintf("%d %s", n, output.Enum("MACHINE_STATE_", k)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func (v *view) screen() (columns, lines int) {
	if v.size == nil {
		return 0, 0
	}
	return v.size()
}

// picture is the whole screen: the bars, what happened, and what to type elsewhere. What happened gets the lines that are left.
func (v *view) picture(f frame) string {
	columns, lines := v.screen()
	head, foot := v.state(f, columns), v.elsewhere(columns)
	room := viewLines
	if lines > 0 {
		left := func() int { return lines - len(head) - rows(foot, columns) - 1 } // a line for the cursor
		if left() < viewFewest && len(v.tries) > 0 {
			foot = v.kept(columns)
		}
		room = min(room, left())
	}
	var events []string
	for _, s := range v.messages {
		events = append(events, output.Wrap(s, columns, "         ")...)
	}
	all := slices.Concat(head, events[max(0, len(events)-max(room, viewFewest)):], foot)
	return strings.Join(all, "\r\n") + "\r\n"
}

// state is one line for each cluster and what serves them. A line is cut where the terminal ends: one that wraps scrolls the picture away.
func (v *view) state(f frame, columns int) (out []string) {
	line := func(format string, args ...any) { out = append(out, output.Cut(fmt.Sprintf(format, args...), columns)) }
	line("%s  %s  (Ctrl-C stops)", v.title, output.Span(time.Since(v.start)))
	line("")
	for _, c := range f.Clusters {
		all := c.Running + c.Starting + c.Waits
		if c.Away {
			line("%-12s its API server does not answer", c.ID)
			continue
		}
		line("%-12s %s %3d of %3d Pods run, %d wait, %s, %d leaving", c.ID, v.bar(c, all, columns), c.Running, all, c.Waits, output.Count(c.Nodes, "Node"), c.Leaving)
	}
	line("")
	if s := f.Status; s != nil {
		line("machines     %s", states(s))
		line("needs        %d, %s", s.GetNeeds(), unmet(s))
		if n := f.missing(); n > 0 && len(f.Gone)+len(f.Late) == 0 {
			line("clusters     %d of %d connected; the other operators are reconnecting", len(f.Clusters)-n, len(f.Clusters))
		}
		line("spend        %s   cycle %d took %.1f ms", output.Dollars(s.GetCostPerHour()), s.GetCycle(), float64(s.GetCycleDurationNanos())/1e6)
	}
	if len(f.Gone) > 0 {
		line("%s %s down: nothing is bought or released for %s clusters", strings.Join(f.Gone, ", "), verb(f.Gone, "is", "are"), verb(f.Gone, "its", "their"))
	}
	if len(f.Late) > 0 {
		line("%s %s not answer now: the figures are without %s", strings.Join(f.Late, ", "), verb(f.Late, "does", "do"), verb(f.Late, "it", "them"))
	}
	line("")
	return out
}

// verb is the word after one name or several.
func verb(names []string, one, several string) string {
	if len(names) == 1 {
		return one
	}
	return several
}

// unmet says it in words: a newcomer sees Pods wait while every need is met, because their machines are being made.
func unmet(s *bigfleetv1alpha1.GetStatusResponse) string {
	switch {
	case s.GetUnsatisfiedNeeds() > 0:
		return fmt.Sprintf("%d unmet: `bigfleet get needs --unmet` shows why", s.GetUnsatisfiedNeeds())
	case s.GetNeeds() > 0:
		return "0 unmet: the machines are there or on the way"
	}
	return "0 unmet"
}

// elsewhere is what another terminal needs; it is never cut, because people copy it.
func (v *view) elsewhere(columns int) (out []string) {
	out = v.kept(columns)
	if len(v.tries) == 0 {
		return out
	}
	if len(out) == 0 {
		out = append(out, "")
	}
	line := "Try in another terminal" + v.with + ":"
	for i, try := range v.tries {
		word := " bigfleet " + try
		if i > 0 {
			line += " |"
		}
		if columns > 0 && utf8.RuneCountInString(line+word)+2 > columns {
			out, line = append(out, line), " "
		}
		line += word
	}
	return append(out, line)
}

// kept is what is needed as long as the world runs.
func (v *view) kept(columns int) (out []string) {
	if len(v.where) > 0 {
		out = append(out, "")
	}
	for _, w := range v.where {
		if line := w[0] + " " + w[1]; columns <= 0 || utf8.RuneCountInString(line) <= columns {
			out = append(out, line)
			continue
		}
		out = append(append(out, output.Wrap(w[0], columns, "  ")...), w[1])
	}
	return out
}

// rows is how many lines of the terminal they take.
func rows(lines []string, columns int) int {
	n := len(lines)
	for _, l := range lines {
		if columns > 0 {
			n += max(0, utf8.RuneCountInString(l)-1) / columns
		}
	}
	return n
}

// bar draws Pods: full for running, half for starting, dots for waiting.
func (v *view) bar(c clusterFrame, all, columns int) string {
	barWidth := barWidth
	if columns > 0 {
		barWidth = max(5, min(barWidth, columns-besideBar))
	}
	if all == 0 {
		return strings.Repeat(" ", barWidth)
	}
	run := c.Running * barWidth / all
	start := c.Starting * barWidth / all
	wait := barWidth - run - start
	if c.Waits == 0 {
		run, wait = run+wait, 0
	}
	full, dots := strings.Repeat("█", run), strings.Repeat("·", wait)
	if v.colour {
		full, dots = "\x1b[32m"+full+"\x1b[0m", "\x1b[31m"+dots+"\x1b[0m"
	}
	return full + strings.Repeat("▒", start) + dots
}
