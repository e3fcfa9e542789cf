package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/bench"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// record runs everything at full size and appends it to the record.
func record(ctx context.Context, root string, s settings, parts []bench.Part) (bool, error) {
	if s.results == "" {
		s.results = filepath.Join(root, "docs", "benchmarks", "results")
	}
	if _, err := measure.NewRecorder(s.results); err != nil {
		return false, err
	}
	parts = slices.DeleteFunc(parts, func(p bench.Part) bool { return p.Nightly && !s.nightly && len(s.only) == 0 })
	r, err := newRunner(ctx, root, parts)
	if err != nil {
		return false, err
	}
	defer r.close()
	r.env = []string{"BIGFLEET_BENCH_RESULTS=" + s.results}
	ok := r.all(ctx, parts, "2,1", s.rounds, os.Stdout)
	if s.nightly && len(s.only) == 0 && ctx.Err() == nil {
		seed := rand.Uint64N(1 << 32)
		fmt.Println("oracles with the random seed", seed)
		scratch, err := os.MkdirTemp(r.dir, "scratch-")
		if err != nil {
			return false, err
		}
		r.env = []string{"BIGFLEET_BENCH_SCALE=10", "BIGFLEET_BENCH_SCRATCH=" + scratch, "BIGFLEET_BENCH_SEED=" + strconv.FormatUint(seed, 10)}
		ok = r.all(ctx, slices.DeleteFunc(parts, func(p bench.Part) bool { return !p.CI }), "2", s.rounds, io.Discard) && ok
	}
	return ok, nil
}

// check runs the short form and compares it with the gates.
func check(ctx context.Context, root string, s settings, parts []bench.Part) (bool, error) {
	path := s.gates
	if path == "" {
		path = filepath.Join(root, "e2e", "bench", "gates.yaml")
	}
	gates, err := bench.ReadGates(path)
	if err != nil {
		return false, err
	}
	parts = slices.DeleteFunc(parts, func(p bench.Part) bool { return !p.CI })
	gates = slices.DeleteFunc(gates, func(g bench.Gate) bool { return len(only(parts, []bench.Failure{{Bench: bench.Family(g.Bench)}})) == 0 })
	r, err := newRunner(ctx, root, parts)
	if err != nil {
		return false, err
	}
	defer r.close()
	failed, err := r.judge(ctx, parts, gates, s.rounds, 1)
	if err == nil && len(failed) > 0 {
		fmt.Println("once more, with twice the rounds")
		failed, err = r.judge(ctx, only(parts, failed), ofFailed(gates, failed), 2*s.rounds, 1)
	}
	for seed := uint64(2); err == nil && len(failed) == 0 && seed <= seedsCI; seed++ {
		failed, err = r.exactly(ctx, parts, gates, seed)
	}
	return err == nil && len(failed) == 0, err
}

// seedsCI is how many seeds the exact gates run with; the others run with the first, whose numbers are published.
const seedsCI = 3

// exactly runs what has exact gates with another seed.
func (r *runner) exactly(ctx context.Context, parts []bench.Part, gates []bench.Gate, seed uint64) ([]bench.Failure, error) {
	var exact []bench.Failure
	gates = slices.DeleteFunc(slices.Clone(gates), func(g bench.Gate) bool { return !g.Exact })
	for _, g := range gates {
		exact = append(exact, bench.Failure{Bench: g.Bench})
	}
	if len(gates) == 0 {
		return nil, nil
	}
	fmt.Println("seed", seed)
	return r.judge(ctx, only(parts, exact), gates, 2, seed)
}

// judge runs parts in the short form and says which gates failed.
func (r *runner) judge(ctx context.Context, parts []bench.Part, gates []bench.Gate, rounds int, seed uint64) ([]bench.Failure, error) {
	scratch, err := os.MkdirTemp(r.dir, "scratch-")
	if err != nil {
		return nil, err
	}
	results, err := r.short(ctx, parts, rounds, scratch, seed)
	if err != nil {
		return nil, err
	}
	failed := bench.Check(gates, results)
	for _, f := range failed {
		fmt.Println("FAILED", f.Text)
	}
	fmt.Printf("%d gates, %d failures\n", len(gates), len(failed))
	return failed, nil
}

// only are the parts that a failure is about, ofFailed the gates.
func only(parts []bench.Part, failed []bench.Failure) (out []bench.Part) {
	for _, p := range parts {
		if slices.ContainsFunc(failed, func(f bench.Failure) bool { return slices.Contains(p.Benches, bench.Family(f.Bench)) }) {
			out = append(out, p)
		}
	}
	return out
}

func ofFailed(gates []bench.Gate, failed []bench.Failure) []bench.Gate {
	return slices.DeleteFunc(slices.Clone(gates), func(g bench.Gate) bool {
		return !slices.ContainsFunc(failed, func(f bench.Failure) bool { return bench.Family(f.Bench) == bench.Family(g.Bench) })
	})
}

// calibrate runs the short form several times and prints what gates.yaml wants to know. The runs stay in the directory of the
// results, if one is given, and those that are there already count as well.
func calibrate(ctx context.Context, root string, s settings, parts []bench.Part) (bool, error) {
	parts = slices.DeleteFunc(parts, func(p bench.Part) bool { return !p.CI })
	r, err := newRunner(ctx, root, parts)
	if err != nil {
		return false, err
	}
	defer r.close()
	dir := s.results
	if dir == "" {
		dir = r.dir
	}
	for range s.calibrate {
		scratch, err := os.MkdirTemp(dir, "run-")
		if err != nil {
			return false, err
		}
		if _, err := r.short(ctx, parts, s.rounds, scratch, 1); err != nil {
			return false, err
		}
	}
	done, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil {
		return false, err
	}
	var runs [][]measure.Result
	for _, d := range done {
		results, err := bench.Read(d)
		if err != nil {
			return false, err
		}
		runs = append(runs, results)
	}
	fmt.Print(bench.Calibration(runs))
	return true, nil
}

// runner holds the built programs.
type runner struct {
	root, dir string
	env       []string
	program   map[string]string // by part
}

func newRunner(ctx context.Context, root string, parts []bench.Part) (*runner, error) {
	dir, err := os.MkdirTemp("", "benchrun-")
	if err != nil {
		return nil, err
	}
	r := &runner{root: root, dir: dir, program: map[string]string{}}
	for _, p := range parts {
		key := p.Module + p.Package
		if r.program[key] != "" {
			continue
		}
		r.program[key] = filepath.Join(dir, strconv.Itoa(len(r.program)))
		args := []string{"test", "-c", "-o", r.program[key], p.Package}
		if p.Program {
			args = []string{"build", "-o", r.program[key], p.Package}
		}
		build := exec.CommandContext(ctx, "go", args...)
		build.Dir, build.Stdout, build.Stderr = filepath.Join(root, p.Module), os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			r.close()
			return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
	}
	return r, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// short runs the parts at a tenth of their size on two processors. A part that fails leaves no result, which a gate sees.
func (r *runner) short(ctx context.Context, parts []bench.Part, rounds int, scratch string, seed uint64) ([]measure.Result, error) {
	r.env = []string{"BIGFLEET_BENCH_SCALE=10", "BIGFLEET_BENCH_SCRATCH=" + scratch, "BIGFLEET_BENCH_SEED=" + strconv.FormatUint(seed, 10)}
	r.all(ctx, parts, "2", rounds, io.Discard)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return bench.Read(scratch)
}

// all runs the parts one after the other, says how long each took, and reports whether all succeeded.
func (r *runner) all(ctx context.Context, parts []bench.Part, cpus string, rounds int, out io.Writer) bool {
	ok := true
	begin := time.Now()
	for _, p := range parts {
		start := time.Now()
		with := cpus
		if p.CPUs != "" {
			with = p.CPUs
		}
		err := r.one(ctx, p, with, rounds, out)
		verdict := "done"
		if err != nil {
			verdict, ok = err.Error(), false
		}
		fmt.Printf("%-4s %-28s %6.1f s  %s\n", strings.Join(p.Benches, " "), p.Package, time.Since(start).Seconds(), verdict)
		if ctx.Err() != nil {
			return false
		}
	}
	fmt.Printf("%d parts in %.0f s\n", len(parts), time.Since(begin).Seconds())
	return ok
}

func (r *runner) one(ctx context.Context, p bench.Part, cpus string, rounds int, out io.Writer) error {
	const patience = 20 * time.Minute
	args := p.Args
	switch {
	case p.Program:
	case p.Run != "":
		args = []string{"-test.run", p.Run, "-test.count", "1", "-test.timeout", patience.String()}
	default:
		args = []string{"-test.run", "^$", "-test.bench", p.Bench, "-test.benchtime", strconv.Itoa(rounds) + "x", "-test.cpu", cpus, "-test.timeout", patience.String()}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program[p.Module+p.Package], args...)
	cmd.Dir = filepath.Join(r.root, p.Module)
	if !p.Program { // a test runs in the folder of its package
		cmd.Dir = filepath.Join(cmd.Dir, p.Package)
	}
	cmd.Env = slices.Concat(os.Environ(), r.env, p.Env)
	var tail strings.Builder
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &tail), io.MultiWriter(out, &tail)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(tail.String()), "\n")
		for _, line := range lines[max(0, len(lines)-15):] {
			fmt.Fprintln(os.Stderr, "   ", line)
		}
		return err
	}
	return nil
}
