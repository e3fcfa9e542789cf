package sim

import (
	"fmt"
	"io"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Tally counts how often each case occurred. A simulator that stops reaching a case goes green (SHARD-33.10).
type Tally struct {
	Events    [int(core.KindPartMade) + 1]int
	Effects   [int(core.EffectComparePlan) + 1]int
	Records   [int(core.RecordInterruption) + 1]int
	Started   [int(core.KindDelete) + 1]int
	Outcomes  [int(core.OutcomeCancelled) + 1]int
	Faults    [faults]int
	Cycles    int
	Replayed  int
	Mismatch  int // incremental plans that differed from the full one
	Checks    int // rules checked on a start, a command or a plan
	Slow      int // sessions ended as slow consumers
	Coalesced int // frames replaced by newer ones before they were written
	Dropped   int // hints and statuses dropped for want of room
}

func (t *Tally) effect(x core.Effect) {
	t.Effects[core.KindOfEffect(x)]++
	switch x := x.(type) {
	case core.Record:
		t.Records[x.Type]++
		switch {
		case x.Type == core.RecordStarted && isStart(x):
			t.Started[x.Kind]++
		case x.Type == core.RecordEnded:
			for o := range t.Outcomes {
				if core.Outcome(o).String() == x.Outcome {
					t.Outcomes[o]++
				}
			}
		}
	case core.Sample:
		if x.Metric == core.MetricPlanMismatch {
			t.Mismatch++
		}
	}
}

// Add adds another run.
func (t *Tally) Add(o *Tally) {
	sum := func(a, b []int) {
		for i := range a {
			a[i] += b[i]
		}
	}
	sum(t.Events[:], o.Events[:])
	sum(t.Effects[:], o.Effects[:])
	sum(t.Records[:], o.Records[:])
	sum(t.Started[:], o.Started[:])
	sum(t.Outcomes[:], o.Outcomes[:])
	sum(t.Faults[:], o.Faults[:])
	t.Cycles += o.Cycles
	t.Replayed += o.Replayed
	t.Mismatch += o.Mismatch
	t.Checks += o.Checks
	t.Slow += o.Slow
	t.Coalesced += o.Coalesced
	t.Dropped += o.Dropped
}

// unreached are cases that this simulator does not bring about, with the reason.
var unreached = map[string]string{
	"outcome no_session":      "the session is checked before an operation starts; kept for the closed set of labels",
	"outcome fenced":          "needs a fence refusal of a Configure whose blob expires before the confirming attempt: TestConfirmingAttemptNeedsAFreshBlob",
	"effect checkpoint_taken": "the decision log asks for it, and the simulator keeps none: TestLogReplaysFromEverySegment",
	"event checkpoint_asked":  "the same",
	"event plan_differed":     "only a defect of the engine brings it about, and it fails the run: TestPlanThatDiffersIsMadeFromNothing",
	"effect close_session":    "needs a session that is still at the older of two processes when that one is refused, which is rare: TestSupersededByAHigherEpoch",
	"fault fence-no-detail":   "needs a fence refusal first, which is rare: two processes or coarse marks",
}

// Never lists the cases that never occurred and should have.
func (t *Tally) Never(o Options) []string {
	p, err := profileNamed(o.Profile)
	if err != nil {
		return nil
	}
	var out []string
	look := func(n int, name string) {
		if _, known := unreached[name]; n == 0 && !known {
			out = append(out, name)
		}
	}
	for k := core.KindStarted; int(k) < len(t.Events); k++ {
		look(t.Events[k], "event "+k.String())
	}
	for k := core.EffectCommand; int(k) < len(t.Effects); k++ {
		look(t.Effects[k], "effect "+k.String())
	}
	for k := 1; k < len(t.Records); k++ {
		look(t.Records[k], fmt.Sprintf("record %d", k))
	}
	for k := core.KindBootstrap; int(k) < len(t.Started); k++ {
		look(t.Started[k], "start of "+k.String())
	}
	for k := range t.Outcomes {
		look(t.Outcomes[k], "outcome "+core.Outcome(k).String())
	}
	if p.only == nil {
		look(t.Slow, "session ended as a slow consumer")
		look(t.Coalesced, "frame replaced before it was written")
		for f := range faults {
			if !o.Without.Has(f) {
				look(t.Faults[f], "fault "+f.String())
			}
		}
	}
	return out
}

// Print writes the counts, one group a line.
func (t *Tally) Print(out io.Writer) {
	group := func(name string, n []int, text func(i int) string) {
		fmt.Fprintf(out, "%s:", name)
		for i, v := range n {
			if v > 0 {
				fmt.Fprintf(out, " %s=%d", text(i), v)
			}
		}
		fmt.Fprintln(out)
	}
	group("events", t.Events[:], func(i int) string { return core.EventKind(i).String() })
	group("effects", t.Effects[:], func(i int) string { return core.EffectKind(i).String() })
	group("records", t.Records[:], func(i int) string { return recordName(core.RecordType(i)) })
	group("started", t.Started[:], func(i int) string { return core.Kind(i).String() })
	group("outcomes", t.Outcomes[:], func(i int) string { return core.Outcome(i).String() })
	group("faults", t.Faults[:], func(i int) string { return Fault(i).String() })
	fmt.Fprintf(out, "cycles=%d checks=%d plans that differed=%d events replayed=%d slow consumers=%d frames replaced=%d, dropped=%d\n",
		t.Cycles, t.Checks, t.Mismatch, t.Replayed, t.Slow, t.Coalesced, t.Dropped)
}
