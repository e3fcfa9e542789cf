package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// sentence says the verdict with what ENG-19.4 wants named, and that there is room beyond what is asked for (ENG-11.16).
func (x *explainer) sentence(e *NeedExplanation) string {
	s := x.verdict(e)
	if most := x.n.Form.MaxPerHost; most > 0 && match.UnitsOf(x.agg, x.unit) > 1 {
		s += fmt.Sprintf(" At most %s of it may be on one machine.", pods(int64(most)))
	}
	if x.room > 0 {
		s += fmt.Sprintf(" It gets room for %s more than requested, because the scheduler could not place them on its machines.", pods(x.room))
	}
	if x.room < 0 {
		s += fmt.Sprintf(" No machine is kept for %s of it: nothing waits, and the machines that were there stayed empty.", pods(-x.room))
	}
	return s
}

func (x *explainer) verdict(e *NeedExplanation) string {
	v := &e.Verdict
	switch v.Status {
	case engine.Met:
		return join(fmt.Sprintf("Met: %s.", machines(int(v.Claimed), int(v.Shared))), v.Detail)
	case engine.OnTheWay:
		are := "are"
		if v.Coming == 1 {
			are = "is"
		}
		return join(fmt.Sprintf("On the way: %d of its machines %s not ready yet.", v.Coming, are), v.Detail)
	}
	s := "Short by " + x.lacks(e.Residual) + ". " + v.Detail.Sentence()
	switch v.Detail {
	case engine.DetailNoMatch:
		s += match.MetByNone(x.inv, x.n.Form)
		if k := x.bestRemoval(); k >= 0 {
			s += " Without " + x.n.Form.Requirements[k].Text() + " most machines would match."
		} else if e.Nearest != nil {
			s += " Nearest: " + e.Nearest.Machine + ", " + e.Nearest.Text + "."
		}
	case engine.DetailDimensionMissing:
		s += " No machine offers " + x.absent() + "."
	case engine.DetailTooSmall:
		if e.Nearest != nil {
			s += " The largest is " + e.Nearest.Machine + ": " + e.Nearest.Text + "."
		}
	case engine.DetailHeldByOthers, engine.DetailPreemptionShort:
		if h := x.largest(e.Holders); h != nil {
			s += fmt.Sprintf(" Most are used by %s of cluster %s (priority %d). %s", rowName(h.NeedName), h.Cluster, h.Priority, h.Why.Sentence())
		} else if lost := lostOf(e.Funnel, "free"); lost != "" {
			s += " " + lost
		}
	case engine.DetailOtherShard:
		if lost := lostOf(e.Funnel, "free"); lost != "" {
			s += " " + lost
		}
	}
	return s
}

// lacks writes a residual: in whole Pods where the Need counts in them (ENG-4.12), else amount by amount.
func (x *explainer) lacks(residual []resource.Quantity) string {
	if k := match.UnitsOf(x.rest, x.unit); x.whole && k > 0 {
		return pods(k) + " of " + AmountList(x.n.MinUnit.Quantities(x.w.Space.Dimensions))
	}
	return AmountList(residual)
}

func pods(n int64) string {
	if n == 1 {
		return "1 Pod"
	}
	return strconv.FormatInt(n, 10) + " Pods"
}

// AmountList words amounts. How many Pods and volumes a node takes is left out where there is anything else to say.
func AmountList(list []resource.Quantity) string {
	var out, limits []string
	for _, q := range list {
		text := q.Name + " " + quantity.Human(q.Name, q.Milli)
		if resource.IsLimit(q.Name) {
			limits = append(limits, text)
		} else {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		out = limits
	}
	return strings.Join(out, ", ")
}

// lostOf words why machines do not come through a step of the funnel.
func lostOf(funnel []FunnelStep, step string) string {
	var out []string
	for _, f := range funnel {
		for _, l := range f.Lost {
			if f.Name == step {
				say := cmp.Or(l.Text, l.Why.Sentence())
				switch {
				case l.Machines == 1:
				case l.Why == RejectForeign:
					say = "Other shards own them."
				case l.Why == RejectElsewhere:
					say = "They are in use in other clusters."
				}
				out = append(out, machineCount(l.Machines)+": "+say)
			}
		}
	}
	return strings.Join(out, " ")
}

func join(s string, d engine.Detail) string {
	if d == engine.NoDetail {
		return s
	}
	return s + " " + d.Sentence()
}
