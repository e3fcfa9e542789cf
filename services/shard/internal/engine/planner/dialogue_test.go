package planner_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

var rewrite = flag.Bool("rewrite", false, "write the answers of the engine into testdata")

// TestDialogues runs the files of testdata: a question, a line of dashes, the answer, an empty line. They are meant to be
// read: together they are the manual of the engine. Each names the clauses it shows.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no dialogues", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got, first := replay(t, string(text))
			if *rewrite {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if first != "" {
				t.Errorf("%s: %s", f, first)
			}
		})
	}
}

// replay answers every question of a dialogue and returns the text with these answers, and the first difference.
func replay(t *testing.T, text string) (string, string) {
	var out strings.Builder
	first := ""
	s := newStage()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for at := 0; at < len(lines); {
		l := lines[at]
		if l == "" || strings.HasPrefix(l, "#") {
			out.WriteString(l + "\n")
			if l == "# scene" { // everything begins again
				s = newStage()
			}
			at++
			continue
		}
		start := at
		var question []string
		for at < len(lines) && lines[at] != "----" {
			question = append(question, lines[at])
			at++
		}
		at++
		var want []string
		for at < len(lines) && lines[at] != "" {
			want = append(want, lines[at])
			at++
		}
		got := s.answer(t, question)
		if w := strings.Join(want, "\n"); w != got && first == "" {
			first = fmt.Sprintf("line %d: %q\ngot:\n%s\nwant:\n%s", start+1, question[0], got, w)
		}
		out.WriteString(strings.Join(question, "\n") + "\n----\n")
		if got != "" {
			out.WriteString(got + "\n")
		}
	}
	return out.String(), first
}

// answer runs one question. The commands that print are plan, run, keep, claims, count, explain (a need), why (a machine) and whatif
// (with the flags of bigfleet plan); others change the world.
func (s *stage) answer(t *testing.T, question []string) string {
	var out []string
	for _, l := range question {
		words := strings.Fields(l)
		if len(words) == 0 || strings.HasPrefix(l, "#") {
			continue
		}
		switch words[0] {
		case "plan":
			lines := s.show(s.plan(t), slices.Contains(words, "brief") || slices.Contains(words, "totals"))
			if slices.Contains(words, "totals") {
				lines = []string{fmt.Sprintf("%d actions; %s", len(s.last.Actions), lines[len(lines)-1])}
			}
			out = append(out, lines...)
		case "run":
			out = append(out, s.run(t, int(number(words[1])))...)
		case "time":
			s.now = seconds(words[1])
		case "dwell":
			for _, w := range words[1:] {
				k, v, _ := strings.Cut(w, "=")
				s.dwell[k] = int(number(v))
			}
		case "keep":
			for _, id := range words[1:] {
				out = append(out, s.keep(id))
			}
		case "claims":
			out = append(out, s.claims(words[1:])...)
		case "count":
			out = append(out, s.count())
		case "explain":
			out = append(out, s.explain(t, words[1])...)
		case "why":
			for _, id := range words[1:] {
				out = append(out, s.why(id)...)
			}
		case "whatif":
			out = append(out, s.whatIf(words[1:])...)
		default:
			s.do(l)
			if words[0] == "machine" && slices.Contains(words, "node=ready") {
				s.joined(words[1])
			}
		}
	}
	if len(out) == 0 {
		return "ok"
	}
	return strings.Join(out, "\n")
}

// name gives the alias of a Need.
func (s *stage) name(r *engine.Result, ref engine.Ref) string {
	if ref.None() {
		return "none"
	}
	n, cluster := r.Need(ref)
	if ref.Row >= engine.FoldedRow {
		var members []string
		for _, m := range r.Blocks[ref.Block].Folded[ref.Row-engine.FoldedRow].Members {
			members = append(members, r.Blocks[ref.Block].Needs[m].Group)
		}
		return cluster + "/fold(" + strings.Join(members, ",") + ")"
	}
	for _, alias := range s.names[n.RowKey()] {
		if strings.HasPrefix(alias, cluster+"/") {
			return alias
		}
	}
	return cluster + "/" + n.Group
}

func dollars(micro int64) string { return strconv.FormatFloat(float64(micro)/1e6, 'f', -1, 64) }

func (s *stage) show(r *engine.Result, brief bool) []string {
	var out []string
	for _, a := range r.Actions {
		v := r.View(s.w, a)
		line := fmt.Sprintf("%s %s", a.Kind, v.Machine)
		switch a.Kind {
		case engine.Bootstrap, engine.Provision:
			line += fmt.Sprintf(" for %s", s.name(r, a.Need))
			if v.Domain != "" {
				line += " in " + v.Domain
			}
			line += fmt.Sprintf(", cost %s", dollars(a.Cost))
		case engine.Preempt, engine.Reclaim:
			line += " of " + v.Cluster
			if d := r.Drains[a.Drain]; !d.Preemptor.None() {
				line += " for " + s.name(r, d.Preemptor)
			}
			line += fmt.Sprintf(", grace %ds", v.Grace)
			if v.Score != 0 {
				line += fmt.Sprintf(", score %d", v.Score)
			}
		}
		out = append(out, line+" ("+a.Cause.String()+")")
	}
	for _, p := range r.Promised {
		out = append(out, fmt.Sprintf("promise %s to %s", s.w.Inventory.ID(p.Machine), p.To.Cluster+"/"+p.To.For.Group))
	}
	if brief {
		return append(out, s.summary(r))
	}
	for bi, b := range r.Blocks {
		for i := range b.Needs {
			out = append(out, s.verdict(r, engine.Ref{Block: int32(bi), Row: int32(i)}))
		}
	}
	return out
}

func (s *stage) summary(r *engine.Result) string {
	var n [4]int
	for _, b := range r.Blocks {
		for i := range b.Verdicts {
			n[b.Verdicts[i].Status]++
		}
	}
	return fmt.Sprintf("%d met, %d on the way, %d short", n[engine.Met], n[engine.OnTheWay], n[engine.Short])
}

func (s *stage) verdict(r *engine.Result, ref engine.Ref) string {
	b := r.Blocks[ref.Block]
	v := &b.Verdicts[ref.Row]
	line := fmt.Sprintf("%s: %s", s.name(r, ref), v.Status)
	if v.Detail != engine.NoDetail {
		line += " " + v.Detail.String()
	}
	if v.Status == engine.Short {
		var parts []string
		for _, q := range b.Missing[v.Missing].Residual.Quantities(s.w.Space.Dimensions) {
			parts = append(parts, q.Name+"="+strconv.FormatFloat(float64(q.Milli)/1000, 'f', -1, 64))
		}
		line += " by " + strings.Join(parts, " ") + ", " + v.Reason.String()
	}
	for _, c := range []struct {
		name string
		n    int32
	}{{"claimed", v.Claimed}, {"bootstrap", v.Bootstrap}, {"provision", v.Provision}, {"coming", v.Coming}, {"shared", v.Shared},
		{"victims", v.Victims}} {
		if c.n != 0 {
			line += fmt.Sprintf(", %s %d", c.name, c.n)
		}
	}
	if d := r.Domain(ref); d != "" {
		line += ", in " + d
	}
	return line
}

func (s *stage) keep(id string) string {
	i := s.index(id)
	k := s.last.Keep(s.w, s.policy, i)
	if k.Action != nil {
		return fmt.Sprintf("%s: %s", id, k.Action.Kind)
	}
	line := fmt.Sprintf("%s: %s", id, k.Reason)
	if !k.Need.None() {
		line += " by " + s.name(s.last, k.Need)
	}
	if k.Recipients > 0 {
		line += fmt.Sprintf(", %d receivers", k.Recipients)
	}
	if k.Until > 0 {
		line += fmt.Sprintf(" until %ds", k.Until/engine.Second)
	}
	return line
}

func (s *stage) claims(clusters []string) []string {
	var out []string
	words := map[engine.ClaimKind]string{engine.ClaimBound: "", engine.ClaimInFlight: " in flight", engine.ClaimKept: " kept", engine.ClaimIdle: " taken", engine.ClaimPurchased: " bought",
		engine.ClaimPromised: " promised"}
	for bi, b := range s.last.Blocks {
		if len(clusters) > 0 && !slices.Contains(clusters, b.Cluster) {
			continue
		}
		for _, c := range b.Claims {
			out = append(out, fmt.Sprintf("%s: %s%s", s.w.Inventory.ID(c.Machine), s.name(s.last, engine.Ref{Block: int32(bi), Row: c.Row}), words[c.Kind]))
		}
		for _, c := range b.Shares {
			out = append(out, fmt.Sprintf("%s: %d units for %s", s.w.Inventory.ID(c.Machine), c.Units, s.name(s.last, engine.Ref{Block: int32(bi), Row: c.Row})))
		}
	}
	slices.Sort(out)
	return out
}

func (s *stage) count() string {
	var parts []string
	for st := inventory.Speculative; st <= inventory.Failed; st++ {
		if n := s.w.Inventory.Count(st); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, st))
		}
	}
	return strings.Join(parts, ", ")
}

// The dialogue of docs/engine.md is one.
func TestTheDocumentedDialogue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "engine.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n    need ")
	var lines []string
	for l := range strings.Lines("    need " + rest) {
		l, indented := strings.CutPrefix(strings.TrimRight(l, "\n"), "    ")
		if !indented {
			break
		}
		lines = append(lines, l)
	}
	if len(lines) < 5 {
		t.Fatalf("docs/engine.md shows no dialogue any more: %q", lines)
	}
	if _, first := replay(t, strings.Join(lines, "\n")); first != "" {
		t.Error(first)
	}
}
