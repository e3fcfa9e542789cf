package bench

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// drawing is one picture of the report. svg is empty if there is nothing to draw.
type drawing struct{ file, title, svg string }

func drawings(all, newest []measure.Result) []drawing {
	return []drawing{
		{"ratios.svg", "Ratio against target", ratioChart(newest)},
		{"slope.svg", "B4: time against needs", slopeChart(newest)},
		{"churn.svg", "B1: time against churn", churnChart(newest)},
		{"latency.svg", "Distributions of B6a, B6b and B11", latencyChart(newest)},
		{"memory.svg", "B8: bytes per machine by part", memoryChart(newest)},
		{"history.svg", "Each ratio over commits", historyChart(all)},
	}
}

// on names machine and date for the line under a title.
func on(r measure.Result) string {
	return fmt.Sprintf("machine %s, %s", r.Machine.Name, r.Time.Format(time.DateOnly))
}

func colourOf(r measure.Result) string {
	if r.GOMAXPROCS == 1 {
		return oneColour
	}
	return twoColour
}

// key explains the two colours.
func (p *picture) key(x, y float64) {
	p.rect(x, y-9, 10, 10, twoColour)
	p.text(x+15, y, "start", "2 CPUs")
	p.rect(x+75, y-9, 10, 10, oneColour)
	p.text(x+90, y, "start", "1 CPU")
}

// ratioChart shows every result that has a target as a part of that target.
func ratioChart(newest []measure.Result) string {
	rows := slices.DeleteFunc(pairs(newest), func(p pair) bool { return p.first().Target == 0 || p.first().Ratio.Rounds == 0 })
	if len(rows) == 0 {
		return ""
	}
	values := []float64{0.1, 10}
	for _, p := range rows {
		for _, r := range []*measure.Result{p.two, p.one} {
			if r != nil {
				values = append(values, r.Ratio.Low/r.Target, r.Ratio.High/r.Target)
			}
		}
	}
	const left, rowHeight = 370, 34
	height := 110 + rowHeight*float64(len(rows))
	x := decades(values, left, 880)
	y := scale{low: 0, high: 1, from: height - 40, to: 66, linear: true}
	p := draw(920, height, "Ours over floor, as a part of the target",
		"One row per benchmark and size that has a target: a dot is the median ratio divided by its target, the line its interval. Left of the vertical line at 1 the target is met.",
		"logarithmic; a dot left of the line at 1 meets its target; "+on(*rows[0].first()))
	p.key(740, 40)
	for _, v := range x.ticks() {
		p.line(x.at(v), y.from, x.at(v), y.to, inkColour, 0.3, "")
		p.text(x.at(v), y.from+16, "middle", fmt.Sprintf("%g x", v))
	}
	p.line(x.at(1), y.from, x.at(1), y.to-6, metColour, 2, "")
	p.ink(x.at(1), y.to-10, "middle", metColour, "target")
	for i, row := range rows {
		top := 80 + rowHeight*float64(i)
		p.text(12, top+4, "start", Name(*row.first()))
		p.text(12, top+18, "start", fmt.Sprintf("target %.3g x %s", row.first().Target, row.first().Floor.Probe))
		for k, r := range []*measure.Result{row.two, row.one} {
			if r == nil {
				continue
			}
			at := top + 10*float64(k)
			p.line(x.at(r.Ratio.Low/r.Target), at, x.at(r.Ratio.High/r.Target), at, colourOf(*r), 2, "")
			p.dot(x.at(r.Ratio.Median/r.Target), at, colourOf(*r))
		}
	}
	return p.done()
}

// slopeChart is B4: time against needs, with the n log n line through the smallest size.
func slopeChart(newest []measure.Result) string {
	var list []measure.Result
	var needs, times []float64
	for _, r := range newest {
		if r.Bench == "B4" {
			list = append(list, r)
			needs, times = append(needs, amount(r, "needs")), append(times, r.Subject.Quantile(0.5), r.Floor.Quantile(0.5))
		}
	}
	if len(list) < 2 {
		return ""
	}
	slices.SortFunc(list, func(a, b measure.Result) int { return int(amount(a, "needs") - amount(b, "needs")) })
	x, y := decades(needs, 90, 700), decades(times, 380, 70)
	p := draw(920, 430, "B4: time of a plan against needs", "Both axes are logarithmic. Dots are median times of plans of gangs; the dashed line grows as n log n from the smallest size; the lower line is the floor.",
		"W-gangs(1, 3, 16), and 780,000 gangs on 504,000 machines; logarithmic; "+on(list[0]))
	p.frame(x, y, count, round)
	p.text(395, 418, "middle", "needs")
	for _, cpus := range []int{2, 1} {
		var points, floors []float64
		for _, r := range list {
			if (r.GOMAXPROCS == 1) != (cpus == 1) {
				continue
			}
			at := x.at(amount(r, "needs"))
			points, floors = append(points, at, y.at(r.Subject.Quantile(0.5))), append(floors, at, y.at(r.Floor.Quantile(0.5)))
			p.dot(at, y.at(r.Subject.Quantile(0.5)), colourOf(r))
		}
		if len(points) == 0 {
			continue
		}
		p.path(points, map[int]string{2: twoColour, 1: oneColour}[cpus], "")
		if cpus == 2 {
			p.path(floors, floorColour, "")
			p.ink(710, floors[len(floors)-1]+4, "start", floorColour, "floor")
		}
		p.ink(710, points[len(points)-1]+4+14*float64(2-cpus), "start", map[int]string{2: twoColour, 1: oneColour}[cpus], fmt.Sprintf("ours, %d CPU", cpus))
	}
	first := list[0]
	var law []float64
	for v := amount(first, "needs"); v <= amount(list[len(list)-1], "needs")*1.001; v *= 1.25 {
		at := first.Subject.Quantile(0.5) * v * math.Log(v) / (amount(first, "needs") * math.Log(amount(first, "needs")))
		if at > y.high {
			break
		}
		law = append(law, x.at(v), y.at(at))
	}
	p.path(law, inkColour, "5 4")
	middle := len(law) / 4 * 2
	p.text(law[middle]-8, law[middle+1]-8, "end", "n log n")
	return p.done()
}

// churnChart is B1 at the full size: time against the part of the clusters that changed, with the scan as a line.
func churnChart(newest []measure.Result) string {
	order := []string{"0%", "0.1%", "1%", "10%", "100%"}
	var list []measure.Result
	var times []float64
	machines := 0.0
	for _, r := range newest {
		if r.Bench == "B1" {
			machines = math.Max(machines, amount(r, "machines"))
		}
	}
	for _, r := range newest {
		if churn, _ := r.Size["churn"].(string); r.Bench == "B1" && amount(r, "machines") == machines && slices.Contains(order, churn) {
			list = append(list, r)
			times = append(times, r.Subject.Quantile(0.5), r.Floor.Quantile(0.5))
		}
	}
	if len(list) == 0 {
		return ""
	}
	y := decades(times, 360, 70)
	p := draw(920, 410, "B1: time of a plan after a change", "For each part of the clusters that changed: the median time of the plan with two CPUs and with one, and the time of one scan over all machines as a line.",
		fmt.Sprintf("%s machines, 50,000 needs, 5,000 clusters; logarithmic; %s", count(machines), on(list[0])))
	p.key(740, 40)
	p.frame(scale{low: 0, high: 1, from: 90, to: 860, linear: true}, y, nil, round)
	column := func(churn string) float64 { return 150 + 155*float64(slices.Index(order, churn)) }
	for _, churn := range order {
		p.text(column(churn), 378, "middle", churn)
	}
	p.text(475, 400, "middle", "clusters that changed")
	var floors []float64
	for _, r := range list {
		at := column(r.Size["churn"].(string))
		offset := map[bool]float64{true: 20, false: -20}[r.GOMAXPROCS == 1]
		top := y.at(r.Subject.Quantile(0.5))
		p.rect(at+offset-16, top, 32, y.from-top, colourOf(r))
		side, x := "end", at+offset+16
		if offset > 0 {
			side, x = "start", at+offset-16
		}
		p.text(x, top-6, side, duration(r.Subject.Quantile(0.5)))
		floors = append(floors, r.Floor.Quantile(0.5))
	}
	scan := measure.Median(floors)
	p.line(90, y.at(scan), 860, y.at(scan), floorColour, 2, "6 4")
	p.ink(860, 58, "end", floorColour, "dashed: one scan of all machines, "+duration(scan))
	return p.done()
}

// latencyChart shows the distributions of the benchmarks that are latencies, floors beside them.
func latencyChart(newest []measure.Result) string {
	type curve struct {
		label, colour string
		steps         []measure.Step
	}
	type panel struct {
		title, under string
		curves       []curve
	}
	colours := []string{twoColour, oneColour, metColour, missColour}
	var panels []panel
	for _, bench := range []string{"B6a", "B6b", "B11"} {
		x := panel{title: bench}
		for _, r := range newest {
			if r.Bench != bench || r.Subject.Quantile(0.5) != r.Subject.Quantile(0.5) || r.GOMAXPROCS == 1 || len(x.curves) > 3 {
				continue
			}
			label, _ := r.Size["work"].(string)
			if label == "" {
				label = "ours"
			}
			x.curves = append(x.curves, curve{label, colours[len(x.curves)], r.Subject.Steps(150)})
			if bench != "B11" && len(r.Floor.Steps(2)) > 1 {
				x.curves = append(x.curves, curve{r.Floor.Probe, floorColour, r.Floor.Steps(150)})
			}
			x.under = on(r)
		}
		if len(x.curves) > 0 {
			panels = append(panels, x)
		}
	}
	if len(panels) == 0 {
		return ""
	}
	const panelHeight = 230
	p := draw(920, 60+panelHeight*float64(len(panels)), "Distributions of what is waited for", "One panel per benchmark: the part of all samples that took no longer than the time below.",
		"B6a: roll-up to Configure. B6b: Pod created to Node Ready. B11: one commit, and writes not accepted while a leader dies or restarts")
	for n, panel := range panels {
		var values []float64
		for _, c := range panel.curves {
			for _, s := range c.steps {
				values = append(values, s.NS)
			}
		}
		top := 60 + panelHeight*float64(n)
		x, y := decades(values, 90, 640), scale{low: 0, high: 1, from: top + 180, to: top + 30, linear: true}
		p.text(90, top+20, "start", panel.title+"; logarithmic; "+panel.under)
		p.frame(x, scale{low: 0, high: 1, from: y.from, to: y.to, linear: true}, round, func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) })
		for k, c := range panel.curves {
			var points []float64
			for _, s := range c.steps {
				points = append(points, x.at(s.NS), y.at(s.Share))
			}
			p.path(points, c.colour, "")
			p.ink(655, top+46+18*float64(k), "start", c.colour, c.label)
		}
	}
	return p.done()
}

// memoryChart is B8: what a machine takes by part, beside the flat record.
func memoryChart(newest []measure.Result) string {
	at := slices.IndexFunc(newest, func(r measure.Result) bool { return r.Bench == "B8" && len(r.Parts) > 0 })
	if at < 0 {
		return ""
	}
	r := newest[at]
	parts := slices.DeleteFunc(slices.Clone(r.Parts), func(p measure.Piece) bool { return p.Bytes < 0.3 })
	slices.SortStableFunc(parts, func(a, b measure.Piece) int { return int(1e6 * (b.Bytes - a.Bytes)) })
	height := 120 + 22*float64(len(parts))
	x := scale{low: 0, high: 10 * math.Ceil(slices.MaxFunc(parts, func(a, b measure.Piece) int { return int(1e6 * (a.Bytes - b.Bytes)) }).Bytes/10), from: 150, to: 800, linear: true}
	total := 0.0
	for _, p := range parts {
		total += p.Bytes
	}
	measured, flat, with := total, 0.0, ""
	for _, b := range r.Bounds {
		switch {
		case b.Name == "live bytes per machine":
			measured = b.Value
		case strings.Contains(b.Name, "P-flat"):
			flat = b.Value
		}
	}
	with = fmt.Sprintf("W-fleet, %s machines; %.1f B measured alive, %.1f B of them in the parts below; flat record and id %.1f B; %s",
		count(amount(r, "machines")), measured, total, flat, on(r))
	p := draw(920, height, "B8: bytes per machine by part", "One bar per field of the machine table: its bytes divided by the number of machines, with all indexes and interned parts.", with)
	y := 70.0
	for _, v := range x.ticks() {
		p.line(x.at(v), y-8, x.at(v), height-40, inkColour, 0.3, "")
		p.text(x.at(v), height-24, "middle", fmt.Sprintf("%g B", v))
	}
	for _, part := range parts {
		p.text(140, y+11, "end", part.Name)
		p.rect(x.from, y, x.at(part.Bytes)-x.from, 15, twoColour)
		p.text(x.at(part.Bytes)+6, y+12, "start", fmt.Sprintf("%.1f B", part.Bytes))
		y += 22
	}
	return p.done()
}

// historyChart is each ratio that has a target over the commits at which it was recorded.
func historyChart(all []measure.Result) string {
	var names, commits []string
	type point struct {
		commit int
		value  float64
	}
	lines := map[string][]point{}
	var values []float64
	for _, r := range all { // oldest first
		if r.Target == 0 || r.Ratio.Rounds == 0 || r.GOMAXPROCS == 1 {
			continue
		}
		name := Name(r)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(commits, r.Commit) {
			commits = append(commits, r.Commit)
		}
		lines[name] = append(lines[name], point{slices.Index(commits, r.Commit), r.Ratio.Median / r.Target})
		values = append(values, r.Ratio.Median/r.Target)
	}
	if len(commits) < 2 {
		return ""
	}
	slices.SortFunc(names, func(a, b string) int { return number(a) - number(b) })
	first, last := all[0], all[len(all)-1]
	height := math.Max(380, 110+20*float64(len(names)))
	y := decades(append(values, 1), height-60, 66)
	p := draw(920, height, "Each ratio over commits, as a part of its target", "One line per benchmark with a target: its median ratio divided by the target at each commit at which it was recorded. Below the line at 1 the target is met.",
		fmt.Sprintf("2 CPUs; logarithmic; %s to %s, machine %s; early results were taken on a busy machine", first.Time.Format(time.DateOnly), last.Time.Format(time.DateOnly), last.Machine.Name))
	across := func(n int) float64 { return 90 + 430*float64(n)/float64(len(commits)-1) }
	p.frame(scale{low: 0, high: 1, from: 80, to: 530, linear: true}, y, nil, func(v float64) string { return fmt.Sprintf("%g x", v) })
	p.line(80, y.at(1), 530, y.at(1), metColour, 2, "")
	for n, c := range commits {
		if n%(1+len(commits)/8) == 0 {
			p.text(across(n), height-42, "middle", fmt.Sprintf("%.7s", c))
		}
	}
	hues := []string{twoColour, oneColour, floorColour, metColour, missColour, "#4fb3a9", "#b5668d", "#9a8b3c", "#6f7fbf", "#5f9f3f", "#c2723a", "#7a7a7a"}
	for k, name := range names {
		colour := hues[k%len(hues)]
		var points []float64
		for _, x := range lines[name] {
			points = append(points, across(x.commit), y.at(x.value))
			p.dot(across(x.commit), y.at(x.value), colour)
		}
		p.path(points, colour, "")
		p.ink(545, 76+20*float64(k), "start", colour, fmt.Sprintf("%s: %.3g x", clusters.ReplaceAllString(name, ""), lines[name][len(lines[name])-1].value))
	}
	return p.done()
}

// clusters is the part of a name that says little beside machines and needs.
var clusters = regexp.MustCompile("/clusters=[^/]*")

// count writes 500000 as 500,000.
func count(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
