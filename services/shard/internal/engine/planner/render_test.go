package planner_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// render writes everything a result says, by id and row key, so that results of worlds with other numbering compare.
func render(w *engine.World, r *engine.Result) string {
	var b strings.Builder
	inv := w.Inventory
	need := func(ref engine.Ref) string {
		if ref.None() {
			return "-"
		}
		n, c := r.Need(ref)
		return fmt.Sprintf("%s/%s/%q", c, n.Form.Fingerprint, n.Group)
	}
	vector := func(v resource.Vector) string { return fmt.Sprint(v.Quantities(w.Space.Dimensions)) }
	fmt.Fprintf(&b, "now %d cycle %d cost %d after %d\n", r.Now, r.Cycle, r.CostBefore, r.CostAfter)
	for _, a := range r.Actions {
		fmt.Fprintf(&b, "action %s %s %s %s cost %d", a.Kind, inv.ID(a.Machine), a.Cause, need(a.Need), a.Cost)
		if a.Drain >= 0 {
			d := r.Drains[a.Drain]
			fmt.Fprintf(&b, " grace %d for %s gap %d score %d %v", d.Grace, need(d.Preemptor), d.Gap, d.Score, d.Terms)
		}
		b.WriteByte('\n')
	}
	for _, p := range r.Promised {
		fmt.Fprintf(&b, "promise %s %+v\n", inv.ID(p.Machine), p.To)
	}
	for _, s := range r.Short {
		fmt.Fprintf(&b, "short %s\n", need(s))
	}
	for at, bl := range r.Blocks {
		fmt.Fprintf(&b, "cluster %s\n", bl.Cluster)
		for i := range bl.Verdicts {
			v := bl.Verdicts[i]
			missing := ""
			if v.Missing >= 0 {
				m := bl.Missing[v.Missing]
				missing = fmt.Sprintf("%d %s freed %s", m.Row, vector(m.Residual), vector(freedOf(&m)))
			}
			v.Missing, v.Domain = 0, 0
			fmt.Fprintf(&b, "  row %s %+v in %q %s\n", need(engine.Ref{Block: int32(at), Row: int32(i)}), v, bl.Domain(int32(i)), missing)
		}
		for i := range bl.Folded {
			f := &bl.Folded[i]
			fmt.Fprintf(&b, "  folded %s %s %s %d %v\n", need(engine.Ref{Block: int32(at), Row: engine.FoldedRow + int32(i)}), vector(f.Need.Aggregate),
				vector(f.Need.MinUnit), f.Need.Arrival, f.Members)
		}
		var lines []string
		for _, c := range bl.Claims {
			lines = append(lines, fmt.Sprintf("  claim %s %s %d\n", inv.ID(c.Machine), need(engine.Ref{Block: int32(at), Row: c.Row}), c.Kind))
		}
		for _, s := range bl.Shares {
			lines = append(lines, fmt.Sprintf("  share %s %s %d\n", inv.ID(s.Machine), need(engine.Ref{Block: int32(at), Row: s.Row}), s.Units))
		}
		for _, i := range bl.Excluded {
			lines = append(lines, fmt.Sprintf("  excluded %s\n", inv.ID(i)))
		}
		for _, i := range bl.Protected {
			lines = append(lines, fmt.Sprintf("  guarded %s\n", inv.ID(i)))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	return b.String()
}

func sameBytes(t rapid.TB, w *engine.World, a, b *engine.Result) {
	t.Helper()
	if d := difference(render(w, a), render(w, b)); d != "" {
		t.Fatalf("results differ:\n%s", d)
	}
}

// difference shows the lines that only one of two texts has, in order.
func difference(a, b string) string {
	if a == b {
		return ""
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	var out []string
	for _, l := range x {
		if !slices.Contains(y, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range y {
		if !slices.Contains(x, l) {
			out = append(out, "+ "+l)
		}
	}
	if len(out) == 0 {
		for i := range x {
			if i >= len(y) || x[i] != y[i] {
				return fmt.Sprintf("order differs at line %d: %s", i, x[i])
			}
		}
	}
	return strings.Join(out, "\n")
}
