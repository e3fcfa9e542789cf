package top

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// view is what a person has chosen to see. The zero view shows every need in the order in which needs get machines.
type view struct {
	sort    int // 0 is that order; n is the column n-1
	reverse bool
	unmet   bool   // only needs that are not met
	filter  string // rows that have it somewhere
	typing  bool   // keys go to the filter
	scroll  int    // rows above the screen
}

var heads = []output.Column{{Head: "NEED"}, {Head: "PRIORITY"}, {Head: "STATUS"}, {Head: "MET"}, {Head: "MACHINES"}, {Head: "ON THE WAY", Spare: true}, {Head: "COST", Spare: true}, {Head: "WAITS"}, {Head: "WHY"}}

// show prints one shard: two lines about it, and its needs.
func (v view) show(w io.Writer, now time.Time, label string, p picture) error {
	v.summary(w, now, label, p)
	l, cut := v.rows(now, p)
	if cut >= 0 {
		l.Rows = slices.Insert(l.Rows, cut, []string{"---- the first need that is short -------"})
	}
	if len(l.Rows) == 0 {
		return nil
	}
	return output.Table.Write(w, l)
}

func (v view) summary(w io.Writer, now time.Time, label string, p picture) {
	s := p.status
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(w, output.Line(format, args...)) }
	line("%s  cycle %d, %s ago, %.1f ms   %s   %s   %s   reclaim budget %.1f", cmp.Or(s.GetShardId(), label), s.GetCycle(), output.Age(now, s.GetCycleAtUnixNanos()),
		float64(s.GetCycleDurationNanos())/1e6, output.Dollars(s.GetCostPerHour()), output.Count(int(total(s.GetMachinesByState())), "machine"), output.Count(int(s.GetSessions()), "cluster"), s.GetReclaimTokens())
	line("in flight: %s   waiting: %s   needs: %d, %d unmet%s", words(s.GetInFlight()), words(s.GetWaiting()), p.header.GetTotalNeeds(), p.header.GetUnsatisfiedNeeds(), p.reasons())
	if left := p.left(); left > 0 {
		line("%d more %s not shown: --rows 0 shows all", left, output.Are(left, "need"))
	}
	if p.header.GetCycle() == 0 {
		line("no evaluation yet: demand is unknown, not zero")
	}
}

// rows are the needs that the view shows, and before which of them the first short one stands; -1 where there is no such line.
func (v view) rows(now time.Time, p picture) (l output.List, cut int) {
	l, cut = output.List{Columns: heads}, -1
	for _, n := range p.needs {
		met := "100%"
		if !n.GetSatisfied() {
			met = fmt.Sprintf("%.0f%%", float64(n.GetCoveragePerMille())/10)
		}
		row := []string{
			subject.ShortNeed(n), fmt.Sprint(n.GetNeed().GetPriority()), output.Enum("NEED_STATE_", n.GetStatus().String()), met, fmt.Sprint(n.GetClaimedMachineCount()),
			fmt.Sprint(n.GetOnTheWayCount()), output.Dollars(n.GetCostUsdPerHour()), output.Age(now, n.GetUnmetSinceUnixNanos()), output.Dash(n.GetDetailText()),
		}
		if v.unmet && n.GetSatisfied() || !strings.Contains(strings.ToLower(strings.Join(row, "  ")), strings.ToLower(v.filter)) {
			continue
		}
		if cut < 0 && n.GetStatus() == bigfleetv1alpha1.NeedState_NEED_STATE_SHORT {
			cut = len(l.Rows)
		}
		l.Rows = append(l.Rows, row)
	}
	if v.sort > 0 {
		_ = l.Sort(heads[v.sort-1].Head) // which is one of its columns
	}
	if v.reverse {
		slices.Reverse(l.Rows)
	}
	if v.sort > 0 || v.reverse {
		cut = -1 // the line is true in the order of precedence only
	}
	return l, cut
}

func total(m map[string]int32) (n int32) {
	for _, v := range m {
		n += v
	}
	return n
}

func words(m map[string]int32) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			out = append(out, fmt.Sprintf("%d %s", m[k], output.Enum("ACTION_KIND_", k)))
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// left is how many needs of the shard are not in the picture.
func (p picture) left() int { return int(p.header.GetTotalNeeds()) - len(p.needs) }

// reasons counts the needs that are not satisfied by their reason, if all of them are in the picture.
func (p picture) reasons() string {
	if p.left() > 0 {
		return ""
	}
	count := map[string]int32{}
	for _, n := range p.needs {
		if !n.GetSatisfied() {
			count[output.Enum("UNMET_REASON_", n.GetUnmetReason().String())]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	return " (" + words(count) + ")"
}
