package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// child is a program that we started.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func start(name string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(name, args...)}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	c.lines.Buffer(nil, 64<<20)
	return c, c.cmd.Start()
}

// peer starts this command again in a role.
func peer(s settings, role string) (*child, error) {
	me, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(me, "-role", role, "-addr", s.addr, "-sessions", strconv.Itoa(s.sessions), "-machines", strconv.Itoa(s.machines), "-needs", strconv.Itoa(s.needs),
		"-warm", s.warm.String(), "-window", s.window.String(), "-period", s.period.String())
}

func (c *child) line() (string, error) {
	if !c.lines.Scan() {
		return "", errors.New("a child ended early")
	}
	return c.lines.Text(), nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// rss and cpu are what /proc says of a process.
func rss(pid int) float64 { return status(pid, "VmRSS:") }

// status is one of the memory figures of a process, in bytes.
func status(pid int, name string) float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.SplitSeq(string(raw), "\n") {
		if v, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return n * 1024
		}
	}
	return 0
}

func cpu(pid int) time.Duration {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// shard builds and starts a shard on a provider, and waits until it is ready.
func shard(ctx context.Context, s settings, provider string, args ...string) (*child, string, bigfleetv1alpha1connect.ShardReadClient, error) {
	bin, err := proc.Build(ctx, "services/shard/cmd/bigfleet-shard")
	if err != nil {
		return nil, "", nil, err
	}
	dir, err := os.MkdirTemp("", "shardload-")
	if err != nil {
		return nil, "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	addr := ln.Addr().String()
	ln.Close()
	if s.debug == "" {
		args = append(args, "--metrics-addr", "0")
	} else {
		args = append(args, "--metrics-addr", s.debug, "--enable-pprof")
	}
	c, err := start(bin, append([]string{"--data-dir", dir, "--provider-addr", provider, "--listen", addr, "--log-level", "error"}, args...)...)
	if err != nil {
		return nil, "", nil, err
	}
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Log: slog.New(slog.DiscardHandler), Limits: rpc.ReadClientLimits()})
	if err != nil {
		return nil, "", nil, err
	}
	read := rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if s, err := read.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{})); err == nil && s.Msg.Ready {
			return c, addr, read, nil
		}
	}
	c.kill()
	return nil, "", nil, errors.New("the shard did not become ready in three minutes")
}

// record fills in what all results share and stores one.
func record(r measure.Result) error {
	r.Schema, r.Time, r.Seed, r.GOMAXPROCS = 1, time.Now().UTC(), 1, 2
	r.Met = r.Target == 0 || r.Ratio.Median <= r.Target
	for _, b := range r.Bounds {
		r.Met = r.Met && b.Met
		fmt.Printf("%-60s %14.2f %s (limit %.1f, met %v)\n", b.Name, b.Value, b.Unit, b.Limit, b.Met)
	}
	fmt.Printf("ratio %.2f, target %.2f, met %v\n", r.Ratio.Median, r.Target, r.Met)
	to, err := measure.RecorderFromEnv()
	if err != nil || to == nil {
		return err
	}
	return to.Record(r)
}

func runB9(ctx context.Context, s settings) error {
	s.machines = 100 // what demand and machines cost is B1 to B8; this is about sessions
	provider, err := peer(s, "provider")
	if err != nil {
		return err
	}
	defer provider.kill()
	at, err := provider.line()
	if err != nil {
		return err
	}
	server, addr, read, err := shard(ctx, s, at, "--actuation-paused", "--max-sessions", strconv.Itoa(s.sessions+1)) // one more changes its demand
	if err != nil {
		return err
	}
	defer server.kill()
	time.Sleep(5 * time.Second)
	pid := server.cmd.Process.Pid
	alone, base := rss(pid), cpu(pid)
	time.Sleep(10 * time.Second)
	restCPU := float64(cpu(pid)-base) / float64(10*time.Second)
	s.addr = addr
	load, err := peer(s, "operators")
	if err != nil {
		return err
	}
	if _, err := untilSessions(ctx, read, s.sessions); err != nil {
		load.kill()
		return err
	}
	time.Sleep(3 * time.Second)
	quiet := rss(pid)
	fmt.Fprintln(load.in, "go")
	time.Sleep(s.warm)
	before, _, err := counts(load)
	if err != nil {
		return err
	}
	used, began := cpu(pid), time.Now()
	time.Sleep(s.window)
	busy := float64(cpu(pid)-used) / float64(time.Since(began))
	after, _, err := counts(load)
	if err != nil {
		return err
	}
	with := rss(pid)
	rate := float64(after-before) / time.Since(began).Seconds()
	busyCycles, silentCycles, err := cyclesBeside(ctx, s, load, read)
	if err != nil {
		return err
	}
	load.kill()
	cut := time.Now()
	if load, err = peer(s, "operators"); err != nil {
		return err
	}
	defer load.kill()
	fmt.Fprintln(load.in, "go")
	for up := int64(0); up < int64(s.sessions); { // the new ones, as their own side counts them
		text, err := load.line()
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(text, &up); err != nil {
			return err
		}
	}
	storm, err := untilSessions(ctx, read, s.sessions)
	if err != nil {
		return err
	}
	back := time.Since(cut)
	bare, err := bareBytes(s)
	if err != nil {
		return err
	}
	per := (with - alone) / float64(s.sessions)
	w := workload.NewSessions(s.sessions, 1)
	return record(measure.Result{Bench: "B9", Size: map[string]any{"sessions": s.sessions}, WorkloadSum: w.Sum(), Target: 1.3,
		Ratio: measure.Ratio{Median: per / bare, Low: per / bare, High: per / bare, Rounds: 1},
		Floor: measure.NewSeries("P-conn, bytes a connection", []int64{int64(bare)}), Subject: measure.NewSeries("", []int64{int64(per)}),
		Oracle: measure.Oracle{Name: "all sessions are installed and the roll-ups acknowledged", Checks: 1},
		Bounds: []measure.Bound{
			measure.AtMost("CPU of the shard, cores", "ratio", busy, 0.5), measure.Shown("CPU of the shard without sessions, cores", "ratio", restCPU),
			measure.AtMost("resident memory of the shard", "B", with, 1<<30), measure.Shown("resident memory a session", "B", per),
			measure.Shown("resident memory a session before its first roll-up", "B", (quiet-alone)/float64(s.sessions)), measure.Shown("bytes of a bare connection", "B", bare),
			measure.NotBelow("roll-ups acknowledged a second", "1/s", rate, 0.95*float64(s.sessions)/s.period.Seconds()),
			measure.AtMost("cycle p50 while roll-ups come", "ns", busyCycles, 50e6), measure.Shown("cycle p50, the same sessions silent", "ns", silentCycles),
			measure.AtMost("cycle p50 with roll-ups over without", "ratio", busyCycles/silentCycles, 1.2),
			measure.AtMost("all sessions back after all were cut", "ns", float64(back), 15e9),
			measure.Shown("longest cycle seen while they came back", "ns", float64(storm)),
		}})
}

// cyclesBeside measures cycles while the operators send their roll-ups, and then while they are stopped: the same sessions and the
// same demand, without traffic. One more operator gives the shard something to plan.
func cyclesBeside(ctx context.Context, s settings, load *child, read bigfleetv1alpha1connect.ShardReadClient) (busy, silent float64, err error) {
	other, err := peer(s, "churn")
	if err != nil {
		return 0, 0, err
	}
	defer other.kill()
	time.Sleep(2 * time.Second)
	if busy, err = cycles(ctx, read); err != nil {
		return 0, 0, err
	}
	if err := load.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, 0, err
	}
	time.Sleep(2 * time.Second)
	silent, err = cycles(ctx, read)
	return busy, silent, err
}

// cycles is the median duration of the cycles of ten seconds.
func cycles(ctx context.Context, read bigfleetv1alpha1connect.ShardReadClient) (float64, error) {
	var took []float64
	last := int64(0)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		st, err := read.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{}))
		if err != nil {
			return 0, err
		}
		if st.Msg.Cycle != last && last != 0 {
			took = append(took, float64(st.Msg.CycleDurationNanos))
		}
		last = st.Msg.Cycle
	}
	if len(took) < 5 {
		return 0, fmt.Errorf("%d cycles in ten seconds", len(took))
	}
	return measure.Quantile(took, .5), nil
}

// counts is the newest line of the operators.
func counts(load *child) (acked, up int64, err error) {
	deadline := time.Now().Add(2 * time.Second)
	for {
		text, err := load.line()
		if err != nil {
			return 0, 0, err
		}
		if _, err := fmt.Sscan(text, &up, &acked); err != nil {
			return 0, 0, err
		}
		if time.Now().After(deadline) { // older lines are gone
			return acked, up, nil
		}
	}
}

// untilSessions waits for n sessions and returns the longest cycle it saw meanwhile.
func untilSessions(ctx context.Context, read bigfleetv1alpha1connect.ShardReadClient, n int) (longest time.Duration, err error) {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if s, err := read.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{})); err == nil {
			longest = max(longest, time.Duration(s.Msg.CycleDurationNanos))
			if int(s.Msg.Sessions) >= n {
				return longest, nil
			}
		}
	}
	return longest, fmt.Errorf("%d sessions were not there in three minutes", n)
}

// bareBytes is P-conn: resident bytes of a bare HTTP/2 connection with one stream, on the server's side.
func bareBytes(s settings) (float64, error) {
	server, err := peer(s, "bareserver")
	if err != nil {
		return 0, err
	}
	defer server.kill()
	if s.addr, err = server.line(); err != nil {
		return 0, err
	}
	before := rss(server.cmd.Process.Pid)
	clients, err := peer(s, "conns")
	if err != nil {
		return 0, err
	}
	defer clients.kill()
	if _, err := clients.line(); err != nil {
		return 0, err
	}
	time.Sleep(2 * time.Second)
	return (rss(server.cmd.Process.Pid) - before) / float64(s.sessions), nil
}

func runB6a(ctx context.Context, s settings) error {
	other, err := peer(s, "reaction")
	if err != nil {
		return err
	}
	defer other.kill()
	at, err := other.line()
	if err != nil {
		return err
	}
	server, addr, _, err := shard(ctx, s, at, "--cycle-min-spacing", "1ms")
	if err != nil {
		return err
	}
	defer server.kill()
	floor, err := probe.CallLatencies(1_000)
	if err != nil {
		return err
	}
	fmt.Fprintln(other.in, addr)
	text, err := other.line()
	if err != nil {
		return err
	}
	var got struct {
		NS              []int64
		Missed, Waiting int
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return err
	}
	if len(got.NS) == 0 {
		return errors.New("no change of demand came to a Configure")
	}
	samples, calls := floats(got.NS), floats(floor)
	p50, three := measure.Quantile(samples, .5), 3*measure.Quantile(calls, .5)
	return record(measure.Result{Bench: "B6a", Size: map[string]any{"machines": s.machines, "clusters": 100}, Target: 10,
		Ratio: measure.Ratio{Median: p50 / three, Low: p50 / three, High: p50 / three, Rounds: 1},
		Floor: measure.NewSeries("P-call", floor), Subject: measure.NewSeries("", got.NS),
		Oracle: measure.Oracle{Name: "each Configure is for the cluster whose demand grew", Checks: len(got.NS)},
		Bounds: []measure.Bound{measure.AtMost("p50", "ns", p50, 2e6), measure.AtMost("p99", "ns", measure.Quantile(samples, .99), 25e6),
			measure.Shown("changes that waited for the one before", "count", float64(got.Missed)), measure.Shown("changes without an answer at the end", "count", float64(got.Waiting))}})
}

func floats(ns []int64) []float64 {
	out := make([]float64, len(ns))
	for i, v := range ns {
		out[i] = float64(v)
	}
	return out
}
