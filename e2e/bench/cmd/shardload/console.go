package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// stage is a shard with its provider, its operators and a console in front of it.
type stage struct {
	shard, console *child
	load           *child
	addr, base     string // of the shard, of the console
	read           bigfleetv1alpha1connect.ShardReadClient
	all            []*child
}

func (g *stage) close() {
	for _, c := range g.all {
		c.kill()
	}
}

// newStage starts everything and waits until the shard has planned the whole demand.
func newStage(ctx context.Context, s settings) (g *stage, err error) {
	g = &stage{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	provider, err := peer(s, "world")
	if err != nil {
		return nil, err
	}
	g.all = append(g.all, provider)
	at, err := provider.line()
	if err != nil {
		return nil, err
	}
	if g.shard, s.addr, g.read, err = shard(ctx, s, at, "--id", "s0", "--max-sessions", strconv.Itoa(s.sessions+10), "--actuation-paused"); err != nil {
		return nil, err
	}
	g.all = append(g.all, g.shard)
	if g.load, err = peer(s, "steady"); err != nil {
		return nil, err
	}
	g.all = append(g.all, g.load)
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		st, err := g.read.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{}))
		if err == nil && int(st.Msg.Needs) >= s.needs {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the shard does not have %d needs after five minutes: %v", s.needs, st)
		}
	}
	g.addr = s.addr
	return g, nil
}

// open starts the console.
func (g *stage) open(ctx context.Context) error {
	bin, err := proc.Build(ctx, "services/bigfleet")
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	listen := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return err
	}
	if g.console, err = start(bin, "console", "--listen", listen, "--coordinator", "", "--shard", "s0="+g.addr, "--metrics-addr", "0", "--log-level", "error"); err != nil {
		return err
	}
	g.all = append(g.all, g.console)
	g.base = "http://" + listen
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got, err := http.Get(g.base); err == nil {
			return got.Body.Close()
		}
	}
	return errors.New("the console does not answer after a minute")
}

// cores is how much of a processor a process takes over a time.
func cores(pid int, over time.Duration) float64 {
	used, began := cpu(pid), time.Now()
	time.Sleep(over)
	return float64(cpu(pid)-used) / float64(time.Since(began))
}

// seen is what the browser's side found. Times are milliseconds.
type seen struct {
	First, Small            []float64 // navigation to a meaningful page: this fleet, a small one
	Demand                  []float64
	Filters, SmallFilters   []float64
	NeedFilters             []float64
	Search                  []float64
	ScrollLongest           float64 // task
	ScrollLongestCPU        float64 // processor time of one task, 0 where the browser does not tell
	ScrollRows, ScrollShown float64
	ScrollTasks             float64 // above 100 ms
	ScrollSeconds           float64
	LiveLongest             float64
	Heap                    []float64 // bytes, after a collection
	Resident                []float64 // bytes of the tab's process
	Wrong                   []string
}

const viewersB13 = 20

// runB13 is the console on a large fleet: the pages in a browser, and what viewers cost the shard. First nothing changes. Then changes
// come in, and the shard, whose actions are paused, plans tens of thousands of waiting starts again about each second.
func runB13(ctx context.Context, s settings) error {
	if s.sessions > 1_000 {
		s.sessions = 1_000
	}
	big, err := newStage(ctx, s)
	if err != nil {
		return err
	}
	defer big.close()
	tiny := s
	tiny.machines, tiny.needs, tiny.sessions, tiny.debug = 1_000, 20, 2, ""
	small, err := newStage(ctx, tiny)
	if err != nil {
		return err
	}
	defer small.close()
	if err := errors.Join(big.open(ctx), small.open(ctx)); err != nil {
		return err
	}
	cost := big.watched(ctx, s)
	still, err := browse(ctx, big.base, small.base, "still")
	if err != nil {
		return err
	}
	fmt.Fprintln(big.load.in, "go")
	churned := big.watched(ctx, s)
	live, err := browse(ctx, big.base, small.base, strconv.Itoa(s.minutes))
	if err != nil {
		return err
	}
	peak := status(big.console.cmd.Process.Pid, "VmHWM:") // below the chart's limit
	first, floor := measure.Quantile(still.First, .5), measure.Quantile(still.Small, .5)
	return record(measure.Result{Bench: "B13", Size: map[string]any{"machines": s.machines, "needs": s.needs, "clusters": s.sessions}, WorkloadSum: steadyWorld(s).Sum(),
		Ratio: measure.Ratio{Median: first / floor, Low: first / floor, High: first / floor, Rounds: len(still.First)},
		Floor: measure.NewSeries("the same page, 1,000 machines and 20 needs", nanos(still.Small)), Subject: measure.NewSeries("", nanos(still.First)),
		Oracle: measure.Oracle{Name: "the rows shown are those of the shard, and each filter's rows match", Checks: len(still.Filters) + len(live.Filters), Failed: len(still.Wrong) + len(live.Wrong)},
		Bounds: slices.Concat(stillBounds(still), liveBounds(live), []measure.Bound{
			measure.AtMost("cores of the shard that 20 viewers cost", "ratio", cost.watched-cost.alone, 0.01), measure.Shown("cores of the shard with a console and no viewer", "ratio", cost.alone),
			measure.Shown("cores of the console with 20 viewers", "ratio", cost.console), measure.Shown("resident memory of the console with 20 viewers", "B", cost.held),
			measure.Shown("cores of the shard that 20 viewers cost while changes come in", "ratio", churned.watched-churned.alone), measure.Shown("cores of the shard with no viewer while changes come in", "ratio", churned.alone),
			measure.Shown("cores of the console with 20 viewers while changes come in", "ratio", churned.console),
			measure.AtMost("most resident memory of the console", "B", peak, 1<<30), measure.Shown("load of the machine at the end", "ratio", loadavg()),
		})})
}

// viewing is what viewers cost, in cores and bytes.
type viewing struct{ alone, watched, console, held float64 }

// watched opens the pages of twenty people. What the shard takes without them is measured before and after: it may change meanwhile.
func (g *stage) watched(ctx context.Context, s settings) (out viewing) {
	pid := g.shard.cmd.Process.Pid
	time.Sleep(s.warm)
	before := cores(pid, s.window)
	stop := view(ctx, g.base, viewersB13)
	time.Sleep(s.warm)
	out.watched = cores(pid, s.window)
	out.console = cores(g.console.cmd.Process.Pid, s.window/2)
	out.held = rss(g.console.cmd.Process.Pid)
	stop()
	time.Sleep(s.warm)
	out.alone = (before + cores(pid, s.window)) / 2
	fmt.Fprintf(os.Stderr, "shard: %.4f cores alone, %.4f with 20 viewers; console %.3f cores, %.0f MiB\n", out.alone, out.watched, out.console, out.held/(1<<20))
	return out
}

const ms = 1e6

func stillBounds(got *seen) []measure.Bound {
	return []measure.Bound{
		measure.AtMost("first meaningful page, worst", "ns", measure.Quantile(got.First, 1)*ms, 1.5e9),
		measure.AtMost("Demand opened by its address, worst", "ns", measure.Quantile(got.Demand, 1)*ms, 1.5e9),
		measure.AtMost("filter of machines, p95", "ns", quantile(got.Filters, .95)*ms, 300e6),
		measure.Shown("filter of machines of the small fleet, p95", "ns", quantile(got.SmallFilters, .95)*ms),
		measure.AtMost("filter of needs, p95", "ns", quantile(got.NeedFilters, .95)*ms, 300e6),
		measure.AtMost("search, p95", "ns", quantile(got.Search, .95)*ms, 300e6),
		// in processor time: by the clock, a task also waits for the drawing without a graphics processor, the shard and the console
		measure.AtMost("most processor time of a task while all rows are scrolled through", "ns", got.ScrollLongestCPU*ms, 100e6),
		measure.Shown("longest of these tasks by the clock", "ns", got.ScrollLongest*ms), measure.Shown("of these tasks, longer than 100 ms by the clock", "count", got.ScrollTasks),
		measure.Shown("rows scrolled through", "count", got.ScrollRows), measure.Shown("of them seen with their content", "count", got.ScrollShown),
		measure.Shown("time of it", "ns", got.ScrollSeconds*1e9),
	}
}

func liveBounds(got *seen) []measure.Bound {
	edge := func(all []float64) (begin, end float64) {
		n := max(1, len(all)/5)
		return measure.Quantile(all[min(n, len(all)-1):min(2*n, len(all))], .5), measure.Quantile(all[len(all)-n:], .5)
	}
	heap0, heap1 := edge(got.Heap)
	res0, res1 := edge(got.Resident)
	return []measure.Bound{
		measure.Shown("while changes come in: first meaningful page, worst", "ns", measure.Quantile(got.First, 1)*ms),
		measure.Shown("while changes come in: filter of machines, p95", "ns", quantile(got.Filters, .95)*ms),
		measure.Shown("while changes come in: filter of needs, p95", "ns", quantile(got.NeedFilters, .95)*ms),
		measure.Shown("while changes come in: search, p95", "ns", quantile(got.Search, .95)*ms),
		measure.AtMost("longest task while changes come in", "ns", got.LiveLongest*ms, 100e6),
		measure.Shown("heap of the tab at the end", "B", heap1), measure.AtMost("heap of the tab, end over begin", "ratio", heap1/heap0, 1.1),
		measure.Shown("resident memory of the tab at the end", "B", res1), measure.AtMost("resident memory of the tab, end over begin", "ratio", res1/res0, 1.1),
	}
}

func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	return measure.Quantile(all, q)
}

func nanos(millis []float64) (out []int64) {
	for _, m := range millis {
		out = append(out, int64(m*1e6))
	}
	return out
}

func loadavg() (n float64) {
	raw, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(raw), &n)
	return n
}

// browse runs the browser's side: while nothing changes ("still"), or for so many minutes while changes come in.
func browse(ctx context.Context, base, small, part string) (*seen, error) {
	root, err := proc.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", filepath.Join("test", "scale.mjs"), base, small, part)
	cmd.Dir, cmd.Stderr = filepath.Join(root, "services", "console", "web"), os.Stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the browser's side: %w\n%s", err, out.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var got seen
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		return nil, fmt.Errorf("the browser's side: %w\n%s", err, out.Bytes())
	}
	if len(got.Wrong) > 0 {
		return nil, fmt.Errorf("the browser's side: %s", strings.Join(got.Wrong, "\n"))
	}
	return &got, nil
}

// view opens the pages of n people as their browsers do, without browsers: each holds the overview, and in turn Demand, the table of
// machines, the list of clusters or the costs.
func view(ctx context.Context, base string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range n {
		client := &http.Client{Transport: &http.Transport{}}
		live, read := bigfleetv1alpha1connect.NewConsoleClient(client, base), bigfleetv1alpha1connect.NewShardReadClient(client, base)
		all.Go(func() {
			if st, err := live.WatchOverview(ctx, connect.NewRequest(&pb.WatchOverviewRequest{})); err == nil {
				for st.Receive() {
				}
				_ = st.Close()
			}
		})
		every := func(d time.Duration, ask func() error) {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := ask(); err != nil && ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "a viewer:", err)
					}
					select {
					case <-ctx.Done():
					case <-time.After(d):
					}
				}
			})
		}
		switch i % 4 {
		case 0:
			all.Go(func() { watchDemand(ctx, live, i) })
		case 1:
			every(5*time.Second, func() error { return tablePage(ctx, read, i) })
		case 2:
			every(3*time.Second, func() error {
				_, err := read.ListClusters(ctx, connect.NewRequest(&pb.ListClustersRequest{PageSize: 1000}))
				return err
			})
		case 3:
			every(3*time.Second, func() error {
				_, err := read.GetCost(ctx, connect.NewRequest(&pb.GetCostRequest{GroupBy: []string{"cluster"}}))
				return err
			})
		}
	}
	return func() { cancel(); all.Wait() }
}

func watchDemand(ctx context.Context, live bigfleetv1alpha1connect.ConsoleClient, i int) {
	st, err := live.WatchNeeds(ctx, connect.NewRequest(&pb.WatchNeedsRequest{Window: &pb.NeedWindow{Offset: int32(500 * i), Limit: 240}}))
	if err != nil {
		return
	}
	for st.Receive() {
	}
	_ = st.Close()
}

func tablePage(ctx context.Context, read bigfleetv1alpha1connect.ShardReadClient, i int) error {
	_, err := read.ListMachines(ctx, connect.NewRequest(&pb.ListMachinesRequest{PageSize: 55, Skip: int32(10 * i), OwnedOnly: true}))
	return err
}
