package sim

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// mustRun runs one seed.
func mustRun(t testing.TB, o Options) Result {
	t.Helper()
	r, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// SHARD-33.2, 33.5, 33.6: a few seeds of each profile, which are the rows of the table, on every change; `make sim` runs thousands. That
// frames reach an operator in the order of the effects (SHARD-5.3) is one of the rules.
func TestSeeds(t *testing.T) {
	for _, profile := range []string{"mixed", "calm", "provider", "operator", "process", "fleet", "moves"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			n := uint64(12)
			if testing.Short() {
				n = 4
			}
			for seed := range n {
				o := Options{Seed: seed + 1, Profile: profile}
				if r := mustRun(t, o); r.Failure != nil {
					t.Errorf("%v\nreproduce: %s", r.Failure, Command(o))
				}
			}
		})
	}
}

// SHARD-33.9: seeds that broke a rule once. Each names what it was.
func TestRegressions(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		profile string
		seed    uint64
		was     string
		all     bool // kinds of faults, also the later ones
	}{
		{"mixed", 154, "an Idle machine was promised for ever to a row that was gone (ENG-5.8)", false},
		{"mixed", 231, "the same after a bootstrap that was rolled back", false},
		{"mixed", 32, "a node that was ready all along was taken for one that never joined", false},
		{"mixed", 640, "two machines drained for one, at an operator that cannot receive a withdrawal (SHARD-17.4)", false},
		{"mixed", 10, "an operation went on that a stale List had begun (SHARD-13.6)", false},
		{"mixed", 972, "the same with a drain", false},
		{"mixed", 1345, "each probe of a parked gang made a lower row acquire and give back a machine (ENG-18.3)", false},
		{"mixed", 1917, "a confirming attempt went over the limit of its concurrency class (SHARD-15.3)", false},
		{"mixed", 712, "what an older process did was held against the newer one, which could not know it", false},
		{"mixed", 1074, "the newer process was taken to know what the older one had received", false},
		{"mixed", 265, "a word older than an instruction, which had changed nothing yet, was called too old (SHARD-13.6)", false},
		{"mixed", 228, "the second try of a machine an hour after its node did not join, within the quiet of the end (ENG-17.7)", false},
		{"mixed", 850, "the same, with its operation still open", false},
		{"mixed", 906, "the same, of a machine that was another cluster's in between", false},
		{"mixed", 874, "the third node in a row that did not join was given up within the quiet of the end (ENG-17.4)", false},
		{"mixed", 301, "the same, and what came free was released", false},
		{"mixed", 40399, "a machine that a person forgot and asked for again was held against its cluster (ENG-17.7)", true},
		{"mixed", 78171, "room for a Pod that waited grew after a doubled wait, within the quiet of the end (ENG-11.16)", true},
		{"mixed", 500016, "a machine that another shard took in the last seconds of the tail was not in a List yet", true},
		{"moves", 600121, "a donor whose process crashed between storing that a move is cancelled and its answer acted on what it had reserved", true},
		{"mixed", 600025, "a view was acknowledged while a host of the domain that it took waited for boot data (COORD-9.9f)", true},
		{"mixed", 30175, "a person who ended a pause while the process was frozen was not heard, and never asked again", true},
	} {
		o := Options{Seed: x.seed, Profile: x.profile}
		if !x.all {
			o.Without = laterKinds()
		}
		if r := mustRun(t, o); r.Failure != nil {
			t.Errorf("%s: %v\nreproduce: %s", x.was, r.Failure, Command(o))
		}
	}
}

// laterKinds are the kinds of faults that were added behind DemandMove: the older seeds keep their histories without them.
func laterKinds() (s FaultSet) {
	for f := DemandMove + 1; f < faults; f++ {
		s = s.With(f)
	}
	return s
}

// SHARD-33.9: the same, of seeds that need a coordinator, a second shard or a real outbox.
func TestRegressionsOfFleets(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		profile string
		seed    uint64
		was     string
	}{
		{"fleet", 89, "a Drain whose reply was lost went again to a machine that another shard had configured since (SHARD-21.6)"},
		{"operator", 3, "a machine whose node did not join went straight back to its cluster (ENG-17.7)"},
		{"mixed", 100460, "a machine was taken from another cluster when the hour of its hold was over, within the quiet of the end (ENG-17.7)"},
		{"mixed", 300168, "a shard that was removed from the fleet acted again when the coordinator did not answer (SHARD-21.7)"},
		{"mixed", 100713, "the same, and what it replaced was released"},
	} {
		o := Options{Seed: x.seed, Profile: x.profile, Without: FaultSet{}.With(RollupLate).With(RollupTwice).With(OperatorUpgrade).With(DemandAside)}
		if r := mustRun(t, o); r.Failure != nil {
			t.Errorf("%s: %v\nreproduce: %s", x.was, r.Failure, Command(o))
		}
	}
}

// SHARD-33.4, 6.3, 6.5: at rest a shard plans once per interval, whatever triggered cycles before. The runs have a tail of 45
// minutes, 270 intervals, and some demand before it.
func TestRestIsQuiet(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		r := mustRun(t, Options{Seed: seed + 1, Profile: "calm"})
		intervals := r.Virtual / (10 * second)
		if most := int(2*intervals) + 1000; r.Tally.Cycles > most {
			t.Errorf("seed %d: %d cycles in %d intervals", seed+1, r.Tally.Cycles, intervals)
		}
	}
}

// SHARD-33.1, 33.7: one seed, one history.
func TestSameSeedSameDigest(t *testing.T) {
	t.Parallel()
	for seed := uint64(100); seed < 106; seed++ {
		a, b := mustRun(t, Options{Seed: seed}), mustRun(t, Options{Seed: seed})
		if a.Digest != b.Digest || a.Steps != b.Steps {
			t.Errorf("seed %d: %d steps and %016x, then %d steps and %016x", seed, a.Steps, a.Digest, b.Steps, b.Digest)
		}
	}
	if a, b := mustRun(t, Options{Seed: 100}), mustRun(t, Options{Seed: 101}); a.Digest == b.Digest {
		t.Error("two seeds have one history")
	}
}

// SHARD-4.9, 28.2: the recorded events of each process, replayed through a fresh core, give the same effects and states.
func TestReplayGivesTheSame(t *testing.T) {
	t.Parallel()
	n := 0
	for seed := uint64(200); seed < 206; seed++ {
		r := mustRun(t, Options{Seed: seed, Replay: true})
		if r.Failure != nil {
			t.Errorf("seed %d: %v", seed, r.Failure)
		}
		n += r.Replayed
	}
	if n < 1000 {
		t.Errorf("only %d events were replayed", n)
	}
}

// SHARD-33.5.14, 4.3: no decision follows the wall clock. Restarts read wall clocks from the journal, so they are off.
func TestWallClockDecidesNothing(t *testing.T) {
	t.Parallel()
	off, err := ParseFaults("process-crash,process-twice,clean-stop,data-dir-lost,hints-lost,admin-pause")
	if err != nil {
		t.Fatal(err)
	}
	jumped := 0
	for seed := uint64(1); seed <= 24; seed++ {
		o := Options{Seed: seed, Profile: "process", Without: off}
		with := mustRun(t, o)
		o.Still = true
		without := mustRun(t, o)
		if with.Digest != without.Digest {
			t.Errorf("seed %d: clock jumps change the history", seed)
		}
		jumped += with.Tally.Faults[WallJump]
	}
	if jumped == 0 {
		t.Error("no clock ever jumped")
	}
}

// Switching a kind of fault off leaves all other draws as they were, which is what makes failures shrinkable.
func TestWithoutChangesNothingElse(t *testing.T) {
	t.Parallel()
	all := mustRun(t, Options{Seed: 7})
	var never Fault
	for f := range faults {
		if !all.On.Has(f) && f != DemandMove {
			never = f
		}
	}
	var off FaultSet
	if got := mustRun(t, Options{Seed: 7, Without: off.With(never)}); got.Digest != all.Digest {
		t.Errorf("switching off %s, which was off, changes the history", never)
	}
}

// The last line on stdout is the only one, and says how many passed. SHARD-33.10, SHARD-28.7: a case that should occur and never did, a type of
// record among them, fails the set.
func TestSummaryLine(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := Main([]string{"-seeds", "2", "-profile", "calm"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if !regexp.MustCompile(`^2 passed, 0 failed \(seeds 1-2, profile calm, \d+\.\d fleet-days, \d+ s\)\n$`).MatchString(out.String()) {
		t.Errorf("stdout is %q", out.String())
	}
	errs.Reset()
	if code := Main([]string{"-seeds", "1", "-profile", "calm", "-coverage"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "never") {
		t.Errorf("a set that reaches little ends with code %d: %s", code, errs.String())
	}
	if code := Main([]string{"-profile", "nonsense"}, &out, &errs); code != 2 {
		t.Errorf("an unknown profile ends with code %d", code)
	}
	if code := Main([]string{"-without", "nonsense"}, &out, &errs); code != 2 {
		t.Errorf("an unknown fault ends with code %d", code)
	}
}

// SHARD-33.3: one simulated day of 1,000 machines and 20 clusters, with heartbeats, Lists and faults.
func BenchmarkDay(b *testing.B) {
	for b.Loop() {
		if r := mustRun(b, Options{Seed: 1, Profile: "day"}); r.Failure != nil || r.Virtual != 24*hour {
			b.Fatalf("%s of a day: %v", clock(r.Virtual), r.Failure)
		}
	}
}

// BenchmarkMixedSeed is the cost of one seed of the profile that `make sim` runs.
func BenchmarkMixedSeed(b *testing.B) {
	for seed := uint64(1); b.Loop(); seed++ {
		mustRun(b, Options{Seed: seed})
	}
}

// Scenario 33, SHARD-20.5: many machines at full concurrency over a network that delays, doubles and reorders calls, at
// providers that keep one mark per machine: no token is ever refused by a fence.
func TestReorderingRaisesNoSuspicion(t *testing.T) {
	t.Parallel()
	off, err := ParseFaults("coarse-marks,fence-no-detail,restart-forgets")
	if err != nil {
		t.Fatal(err)
	}
	doubled, sent := 0, 0
	for seed := uint64(1); seed <= 40; seed++ {
		r := mustRun(t, Options{Seed: seed, Profile: "provider", Without: off})
		if r.Failure != nil {
			t.Errorf("seed %d: %v", seed, r.Failure)
		}
		if n := r.Tally.Records[core.RecordFence]; n != 0 {
			t.Errorf("seed %d: %d fence records without a second process", seed, n)
		}
		doubled += r.Tally.Faults[DuplicateRequest] + r.Tally.Faults[LateRequest]
		sent += r.Tally.Effects[core.EffectCommand]
	}
	if doubled < 30 || sent < 1500 {
		t.Errorf("%d calls doubled or late of %d: that proves nothing", doubled, sent)
	}
}
