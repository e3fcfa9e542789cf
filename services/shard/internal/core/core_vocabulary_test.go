package core

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// spec returns the text of one clause or of what follows it up to the next.
func clause(t *testing.T, id string) string {
	t.Helper()
	raw, err := os.ReadFile("../../../../docs/spec/shard.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "**"+id+"**")
	if !found {
		t.Fatalf("no clause %s", id)
	}
	text, _, _ := strings.Cut(rest, "\n- **SHARD-")
	return text
}

// firstColumn lists the words in backticks of the first column of a table.
func firstColumn(text string) (out []string) {
	for line := range strings.Lines(text) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok && strings.HasPrefix(line, "|") {
			for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cell, -1) {
				out = append(out, m[1])
			}
		}
	}
	slices.Sort(out)
	return out
}

func typeNames[T any](list []T) (out []string) {
	for _, x := range list {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", x), "*"), "core."))
	}
	slices.Sort(out)
	return out
}

// SHARD-5.1, 5.2, 4.1: the tables of the specification are all that goes into a step and comes out of it. (That each kind
// occurs is shown by the simulator, SHARD-33.10.)
func TestEventsAndEffectsAreThoseOfTheTables(t *testing.T) {
	events := typeNames([]Event{Started{}, SessionOpened{}, SessionClosed{}, RollupArrived{}, BootstrapAnswered{}, ReclaimAcked{}, NodeReported{},
		DrainReported{}, UnplacedReported{}, ListPage{}, ListDone{}, GetDone{}, CommandDone{}, CoordinatorReplied{}, AdminAsked{}, Tick{}, Stopping{},
		CheckpointAsked{}, PlanDiffered{}, DemandTooWide{}, PartMade{}})
	if got := firstColumn(clause(t, "SHARD-5.1")); !slices.Equal(got, events) || len(events) != int(KindPartMade) {
		t.Errorf("the table has %v\nthe core takes %v of %d kinds", got, events, KindPartMade)
	}
	effects := typeNames([]Effect{Command{}, GetMachine{}, ListMachines{}, PullBootstrap{}, DropBlob{}, SendReclaim{}, SendNodeState{}, SendHint{}, SendNeedStatus{},
		SendAck{}, CloseSession{}, AckInstruction{}, Notice{}, Persist{}, Record{}, Sample{}, &Publish{}, Superseded{}, WakeAt{}, AdminAnswer{},
		CheckpointTaken{}, &ComparePlan{}})
	if got := firstColumn(clause(t, "SHARD-5.2")); !slices.Equal(got, effects) || len(effects) != int(EffectComparePlan) {
		t.Errorf("the table has %v\nthe core gives %v of %d kinds", got, effects, EffectComparePlan)
	}
}

// SHARD-15.11: the outcomes of operations are the closed set of the specification.
func TestOutcomesAreThoseOfTheClause(t *testing.T) {
	var named []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(clause(t, "SHARD-15.11"), -1) {
		named = append(named, m[1])
	}
	var have []string
	for o := range OutcomeCancelled + 1 {
		have = append(have, o.String())
	}
	slices.Sort(named)
	slices.Sort(have)
	if !slices.Equal(named, have) {
		t.Errorf("the clause has %v\nthe core has %v", named, have)
	}
}
