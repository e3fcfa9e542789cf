package measure

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Section 4: the interval of ten is from the second smallest to the second largest.
func TestInterval(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	if low, high := Interval(ten); low != 2 || high != 9 {
		t.Errorf("ten: %v to %v", low, high)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	// With the binomial distribution of 100: P(fewer than 39 heads) = 0.0105, so 39 and 62 hold it with 97.9 %.
	if low, high := Interval(hundred); low != 39 || high != 62 {
		t.Errorf("hundred: %v to %v", low, high)
	}
	if low, high := Interval([]float64{3, 1, 2}); low != 1 || high != 3 {
		t.Errorf("three: %v to %v", low, high)
	}
	if low, _ := Interval(nil); !math.IsNaN(low) {
		t.Error("none")
	}
}

func TestStatistics(t *testing.T) {
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median %v", got)
	}
	samples := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := Quantile(samples, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if !slices.Equal(samples, []float64{5, 1, 4, 2, 3}) {
		t.Error("the samples were reordered")
	}
	if got := Slope([]float64{10, 100, 1000}, []float64{2, 20, 200}); math.Abs(got-1) > 1e-9 {
		t.Errorf("slope %v", got)
	}
	if got := Slope([]float64{1, 2, 4}, []float64{3, 12, 48}); math.Abs(got-2) > 1e-9 {
		t.Errorf("slope %v", got)
	}
}

// pair tells the order of everything that runs.
func pair(story *[]string, wrong func() error) Pair {
	say := func(s string) func() { return func() { *story = append(*story, s) } }
	return Pair{
		Bench: "B0", Size: map[string]any{"machines": 500_000, "churn": "1%", "needs": 123}, Seed: 1, WorkloadSum: "ab", Oracle: "nothing", Target: 1e9,
		Floor:   Sum(Floor{Probe: "P-a", Parts: []Part{{Prepare: say("a0"), Run: say("A")}}}, Repeat(2, Floor{Probe: "P-b", Parts: []Part{{Run: say("a")}}})),
		Prepare: say("b0"), Subject: say("B"),
		Check: func() error {
			*story = append(*story, "check")
			return wrong()
		},
	}
}

func fine() error { return nil }

// Section 4: A B B A, preparation before and the oracle after each B; two rounds of warm-up; ten kept; one ratio each.
func TestRounds(t *testing.T) {
	var story []string
	result, err := Run(pair(&story, fine), Options{})
	if err != nil {
		t.Fatal(err)
	}
	round := "a0 A a a b0 B check b0 B check a0 A a a"
	want := strings.TrimSpace(strings.Repeat(round+" ", 12)) + " b0 B check" // the last watches the heap
	if got := strings.Join(story, " "); got != want {
		t.Errorf("ran %q", got)
	}
	if result.Ratio.Rounds+len(result.Dropped) != 10 || result.Oracle.Checks != 25 || result.Oracle.Failed != 0 || !result.Met {
		t.Errorf("%+v", result)
	}
	if len(result.Floor.Samples()) != 2*result.Ratio.Rounds || result.Floor.Probe != "P-a + 2 P-b" {
		t.Errorf("%d samples of %q", len(result.Floor.Samples()), result.Floor.Probe)
	}
	if result.Ratio.Low > result.Ratio.Median || result.Ratio.Median > result.Ratio.High || result.HeapPeakBytes <= 0 {
		t.Errorf("%+v", result)
	}
}

// Honesty rule 1: a wrong answer is an error and no number, in the warm-up, in a round, and in the last run.
func TestWrongAnswer(t *testing.T) {
	for _, at := range []int{1, 10, 25} {
		var story []string
		checks := 0
		_, err := Run(pair(&story, func() error {
			if checks++; checks == at {
				return errors.New("machine m1 claimed twice")
			}
			return nil
		}), Options{})
		if err == nil || !strings.Contains(err.Error(), "claimed twice") {
			t.Errorf("check %d failed: %v", at, err)
		}
	}
	if _, err := Run(Pair{Bench: "B0"}, Options{}); err == nil {
		t.Error("a pair without oracle was run")
	}
}

// A target that is missed is shown as missed; allocations are those of the subject alone.
func TestTargetAndAllocations(t *testing.T) {
	var kept []byte
	result, err := Run(Pair{
		Bench: "B0", Oracle: "none", Target: 1e-9, Check: fine,
		Floor:   Floor{Probe: "P", Parts: []Part{{Prepare: func() { kept = make([]byte, 1<<20) }, Run: func() {}, Times: 3}}},
		Prepare: func() { kept = make([]byte, 1<<20) },
		Subject: func() { kept = make([]byte, 1<<16) },
	}, Options{WarmUp: 1, Rounds: 10})
	if err != nil {
		t.Fatal(err)
	}
	if result.Met {
		t.Error("a missed target is called met")
	}
	if result.AllocsOp != 1 || result.BytesOp < 1<<16 || result.BytesOp > 1<<17 {
		t.Errorf("%d allocations, %d bytes", result.AllocsOp, result.BytesOp)
	}
	_ = kept
}

// Section 8: a line has the keys of the schema; up to 2,000 samples are raw, more become buckets of 1 % with exact
// quantiles.
func TestResultLine(t *testing.T) {
	line, err := json.Marshal(Result{Schema: 1, Bench: "B1", Floor: NewSeries("P-scan", []int64{5, 6}), Dropped: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(line, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"schema", "bench", "size", "commit", "time", "seed", "workload_sha256", "gomaxprocs", "machine", "floor",
		"subject", "ratio", "target", "met", "allocs_op", "bytes_op", "heap_peak_bytes", "oracle", "dropped"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no %q in %s", key, line)
		}
	}
	var back Result
	if err := json.Unmarshal(line, &back); err != nil || !slices.Equal(back.Floor.Samples(), []int64{5, 6}) || back.Floor.Probe != "P-scan" {
		t.Errorf("%+v, %v", back, err)
	}
	long := make([]int64, 10_000)
	for i := range long {
		long[i] = int64(i + 1)
	}
	line, err = json.Marshal(NewSeries("", long))
	if err != nil {
		t.Fatal(err)
	}
	var s seriesJSON
	if err := json.Unmarshal(line, &s); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for n, b := range s.Buckets {
		total += b[1]
		if n > 0 && b[0] <= s.Buckets[n-1][0] && b[0] > 100 {
			t.Errorf("bucket %d starts at %d after %d", n, b[0], s.Buckets[n-1][0])
		}
	}
	if s.NS != nil || s.Count != 10_000 || total != 10_000 || s.P50 != 5_000 || s.P99 != 9_900 || s.Max != 10_000 {
		t.Errorf("%+v", s)
	}
}

func TestName(t *testing.T) {
	got := Name("B1", map[string]any{"machines": 500_000, "needs": 50_000, "clusters": 1_234, "churn": "1%", "all": 2_000_000})
	if want := "B1/all=2M/churn=1%/clusters=1234/machines=500k/needs=50k"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// repository makes a git tree with one commit and enters it.
func repository(t *testing.T) (dir string, git func(...string)) {
	t.Helper()
	dir = t.TempDir()
	t.Chdir(dir)
	git = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	git("init", "-q")
	if err := os.MkdirAll("docs/benchmarks/results", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("a.go", []byte("package a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("add", "a.go")
	git("commit", "-q", "-m", "a: first")
	return dir, git
}

// Honesty rule 12: numbers from a dirty tree are not recorded; results themselves do not make it dirty.
func TestRecorder(t *testing.T) {
	dir, _ := repository(t)
	t.Setenv("BIGFLEET_BENCH_MACHINE", "build-2c")
	results := filepath.Join(dir, "docs/benchmarks/results")
	t.Setenv("BIGFLEET_BENCH_RESULTS", results)
	at := time.Date(2027, 1, 15, 10, 20, 30, 0, time.UTC)
	for range 2 {
		r, err := RecorderFromEnv()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Record(Result{Bench: "B1", Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(results + "/2027-01-15-????????????-build-2c.jsonl")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := 0
	for scanner := bufio.NewScanner(file); scanner.Scan(); lines++ {
		var r Result
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil || len(r.Commit) != 40 || r.Machine.Cores < 1 || r.Dropped == nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if lines != 2 {
		t.Errorf("%d lines", lines)
	}
	if err := os.WriteFile("a.go", []byte("package b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := RecorderFromEnv(); !errors.Is(err, ErrDirty) {
		t.Errorf("a dirty tree: %v", err)
	}
	t.Setenv("BIGFLEET_BENCH_RESULTS", "")
	if r, err := RecorderFromEnv(); r != nil || err != nil {
		t.Errorf("%v, %v", r, err)
	}
}

// A results file stays small enough for the repository.
func TestRecorderBound(t *testing.T) {
	dir, _ := repository(t)
	r, err := NewRecorder(filepath.Join(dir, "docs/benchmarks/results"))
	if err != nil {
		t.Fatal(err)
	}
	big := Result{Bench: strings.Repeat("b", 150<<10)}
	if err := r.Record(big); err != nil {
		t.Fatal(err)
	}
	if err := r.Record(big); err == nil {
		t.Error("the file grew over its bound")
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	if m.Cores < 1 || m.Go == "" || m.Name == "" {
		t.Errorf("%+v", m)
	}
	host, err := os.Hostname()
	if err == nil && len(host) > 3 && strings.Contains(m.Name, host) {
		t.Error("the host name is recorded")
	}
}

// B8: what is kept alive is counted, what is not is not.
func TestLive(t *testing.T) {
	got := Live(func() any {
		_ = make([]byte, 8<<20)
		return make([]byte, 4<<20)
	})
	if got < 4<<20 || got > 5<<20 {
		t.Errorf("%d bytes", got)
	}
}

// Compare is a benchmark: fewer than twelve iterations report nothing, twelve report the ratio.
func TestCompare(t *testing.T) {
	var story []string
	r := testing.Benchmark(func(b *testing.B) { Compare(b, pair(&story, fine)) })
	if r.Extra["ratio"] <= 0 || r.Extra["subject-ns"] <= 0 || r.Extra["floor-ns"] <= 0 {
		t.Errorf("%v", r.Extra)
	}
}

// Section 6: a result is met when its ratio and each of its bounds are.
func TestBounds(t *testing.T) {
	p := pair(new([]string), fine)
	p.Bounds = func(ns float64) []Bound {
		return []Bound{AtMost("time", "ns", ns, 1e12), NotBelow("rate", "1/s", 1e9/ns, 1e9), Shown("lines", "count", 3)}
	}
	r, err := Run(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Bounds) != 3 || !r.Bounds[0].Met || r.Bounds[1].Met || !r.Bounds[2].Met || r.Met {
		t.Errorf("%+v, met %v", r.Bounds, r.Met)
	}
}

// Scratch lines are for gates: they name no commit, whatever the state of the tree.
func TestScratchRecorder(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BIGFLEET_BENCH_RESULTS", "")
	t.Setenv("BIGFLEET_BENCH_SCRATCH", dir)
	t.Setenv("BIGFLEET_BENCH_MACHINE", "m")
	r, err := RecorderFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Record(Result{Bench: "B9", Time: time.Unix(0, 0).UTC(), Bounds: []Bound{AtMost("x", "B", 2, 1)}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "1970-01-01-scratch-m.jsonl"))
	if err != nil || !strings.Contains(string(data), `"commit":"scratch"`) || !strings.Contains(string(data), `"met":false,"allocs_op"`) {
		t.Errorf("%s, %v", data, err)
	}
}

// A reader gets the same quantiles from buckets as from the samples they were made of.
func TestQuantilesOfBuckets(t *testing.T) {
	long := make([]int64, 10_000)
	for i := range long {
		long[i] = int64(i + 1)
	}
	data, err := json.Marshal(NewSeries("", long))
	if err != nil {
		t.Fatal(err)
	}
	var s Series
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if s.Quantile(0.5) != 5_000 || s.Quantile(0.99) != 9_900 || s.Quantile(1) != 10_000 || !math.IsNaN(s.Quantile(0.3)) {
		t.Errorf("%v %v %v", s.Quantile(0.5), s.Quantile(0.99), s.Quantile(1))
	}
	if got := NewSeries("", []int64{1, 3}).Quantile(0.5); got != 2 {
		t.Errorf("median of two: %v", got)
	}
}

// A distribution can be drawn from samples and from buckets, in as few steps as asked for.
func TestSteps(t *testing.T) {
	if got := NewSeries("", []int64{30, 10, 20, 40}).Steps(10); !slices.Equal(got, []Step{{10, 0.25}, {20, 0.5}, {30, 0.75}, {40, 1}}) {
		t.Errorf("%v", got)
	}
	long := make([]int64, 10_000)
	for i := range long {
		long[i] = int64(i + 1)
	}
	data, err := json.Marshal(NewSeries("", long))
	if err != nil {
		t.Fatal(err)
	}
	var s Series
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, series := range []Series{s, NewSeries("", long)} {
		steps := series.Steps(50)
		if len(steps) != 50 || steps[49].Share != 1 || steps[49].NS < 9_800 {
			t.Errorf("%d steps, the last %v", len(steps), steps[len(steps)-1])
		}
		for _, x := range steps {
			if math.Abs(x.Share-x.NS/10_000) > 0.011 {
				t.Errorf("%v", x)
			}
		}
	}
}
