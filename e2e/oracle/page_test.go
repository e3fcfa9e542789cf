package oracle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// line is a world on the page.
type line struct {
	Seed                          uint64
	Pods, Bound, Hopeless, Missed int
	Limits                        int // missed by a limit that is documented
	Seconds                       float64
	Bought, Settled, Best, Waves  float64 // dollars per hour
	BoughtN, SettledN, BestN      int
	Packed, WavesPacked           bool
	Scheduled                     float64 // dollars per hour; 0: none was found
}

func (o outcome) line() line {
	return line{Seed: o.seed, Pods: o.pods, Bound: o.bound, Hopeless: o.hopeless, Missed: total(o.misses), Limits: total(o.refused), Seconds: o.took.Seconds(),
		Bought: o.most, Settled: o.settled, Best: o.best, Waves: o.waves, BoughtN: o.mostN, SettledN: o.settledN, BestN: o.bestN, Packed: o.packed && o.best > 0,
		WavesPacked: o.wavesPacked && o.waves > 0, Scheduled: o.scheduled}
}

// linesOf names the file that record adds to, and pageIn the page.
const linesOf, pageIn = "BIGFLEET_ORACLE_LINES", "BIGFLEET_ORACLE_PAGE"

// record adds a world to the file of BIGFLEET_ORACLE_LINES, so that a long run may be done in parts, and writes the page of
// BIGFLEET_ORACLE_PAGE from all that the file has.
func record(t *testing.T, o outcome) {
	file, page := os.Getenv(linesOf), os.Getenv(pageIn)
	if file == "" {
		return
	}
	text, err := json.Marshal(o.line())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if page == "" {
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []line
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	if err := os.WriteFile(page, []byte(pageOf(all)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// pageOf writes what the worlds cost, beside the best packings.
func pageOf(all []line) string {
	slices.SortFunc(all, func(a, b line) int { return int(a.Seed) - int(b.Seed) })
	var bought, settled, waves, scheduled []float64
	owed, missed, limits := 0, 0, 0
	var rows strings.Builder
	for _, l := range all {
		owed, missed, limits = owed+l.Bound+l.Missed, missed+l.Missed, limits+l.Limits
		ratios := "– | – | – | –"
		if l.Packed {
			bought, settled = append(bought, l.Bought/l.Best), append(settled, l.Settled/l.Best)
			inWaves, filled := "–", "–"
			if l.WavesPacked {
				waves = append(waves, l.Settled/l.Waves)
				inWaves = fmt.Sprintf("%.2f", l.Settled/l.Waves)
			}
			if l.Scheduled > 0 {
				scheduled = append(scheduled, l.Settled/l.Scheduled)
				filled = fmt.Sprintf("%.2f", l.Settled/l.Scheduled)
			}
			ratios = fmt.Sprintf("%.2f | %.2f | %s | %s", l.Bought/l.Best, l.Settled/l.Best, inWaves, filled)
		}
		fmt.Fprintf(&rows, "| %d | %d | %d | %d | %d | %d | %.1f s | %.2f (%d) | %.2f (%d) | %.2f (%d) | %s |\n", l.Seed, l.Pods, l.Bound, l.Missed, l.Limits, l.Hopeless,
			l.Seconds, l.Bought, l.BoughtN, l.Settled, l.SettledN, l.Best, l.BestN, ratios)
	}
	for _, x := range [][]float64{bought, settled, waves, scheduled} {
		slices.Sort(x)
	}
	return fmt.Sprintf(`# What is bought, beside the best packing

Written by `+"`make oracle-page`"+` on %s: %d random worlds with kinds of constraints that kube-scheduler reads, judged by the real kube-scheduler ([e2e/oracle](../../e2e/oracle/doc.go)).

| | Median | Three of four | Highest | Aim |
|---|---|---|---|---|
| most that was paid per hour, over the best packing | %.2f | %.2f | %.2f | 1.15 |
| after what was too much was given back | %.2f | %.2f | %.2f | |
| the same, over the best packing in two waves | %.2f | %.2f | %.2f | |
| the same, over the cheapest machines that kube-scheduler fills | %.2f | %.2f | %.2f | 1.15 |

Of %d Pods that machines satisfy %d had none in the end, and %d more by limits that [clusters.md](../clusters.md) documents.

The Pods of a world come in two waves. *Best packing* is the cheapest set of machines that a search found for all of them at once: it knows the second wave when it buys
for the first. *In two waves* is a set for the first wave that is as cheap as any that was found, and what is then bought beside it for the second. Neither knows that kube-scheduler
spreads Pods over the Nodes that are there. *Kube-scheduler fills* is the cheapest set that a search found on which a model of kube-scheduler's scores places every Pod, in each of
eight orders of arrival; machines are there before their Pods, of both waves at once or of each, whichever is cheaper. A world may do with less than that set in the order that it happened to have.

| World | Pods | Run | Missed | By limits | Hopeless | All run after | Most $/h (machines) | Settled | Best packing | Most | Settled | Settled, two waves | Settled, as it fills |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
%s`, time.Now().UTC().Format(time.DateOnly), len(all), middle(bought), part(bought, 0.75), last(bought), middle(settled), part(settled, 0.75), last(settled),
		middle(waves), part(waves, 0.75), last(waves), middle(scheduled), part(scheduled, 0.75), last(scheduled), owed, missed, limits, rows.String())
}

func part(sorted []float64, of float64) float64 {
	if len(sorted) == 0 {
		return 1
	}
	return sorted[min(len(sorted)-1, int(of*float64(len(sorted))))]
}

// A page of worlds in any order names the middle and the highest ratio, and each world once.
func TestPage(t *testing.T) {
	page := pageOf([]line{
		{Seed: 9, Pods: 5, Bound: 5, Bought: 3, Settled: 2, Best: 2, Waves: 2, Packed: true, WavesPacked: true, Scheduled: 1.6},
		{Seed: 2, Pods: 4, Bound: 3, Missed: 1, Bought: 4, Settled: 4, Best: 2, Packed: true},
		{Seed: 7, Pods: 1, Hopeless: 1},
		{Seed: 3, Pods: 4, Bound: 4, Bought: 2, Settled: 2, Best: 2, Waves: 2, Packed: true, WavesPacked: true},
	})
	for _, want := range []string{"over the best packing | 1.50 | 2.00 | 2.00 | 1.15 |", "given back | 1.00 | 2.00 | 2.00 | |", "Of 13 Pods that machines satisfy 1 had none",
		"| 2 | 4 | 3 | 1 |", "| 7 | 1 | 0 | 0 | 0 | 1 | 0.0 s | 0.00 (0) | 0.00 (0) | 0.00 (0) | – | – | – | – |", "fills | 1.25 | 1.25 | 1.25 | 1.15 |", "| 1.50 | 1.00 | 1.00 | 1.25 |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	t.Setenv(linesOf, filepath.Join(t.TempDir(), "lines"))
	t.Setenv(pageIn, filepath.Join(t.TempDir(), "page.md"))
	record(t, outcome{seed: 1, packed: true, most: 3, best: 2})
	record(t, outcome{seed: 0, packed: true, most: 2, best: 2})
	if text, err := os.ReadFile(os.Getenv(pageIn)); err != nil || !strings.Contains(string(text), "2 random worlds") {
		t.Errorf("two records give %q, %v", text, err)
	}
}
