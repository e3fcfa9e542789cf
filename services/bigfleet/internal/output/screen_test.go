package output_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// OPS-4.1: on a terminal no row of a table wraps. -o wide, and what is not a terminal, show all of it.
func TestTablesFitTheScreen(t *testing.T) {
	list := output.List{Columns: []output.Column{{Head: "NAME"}, {Head: "WHY"}, {Head: "MORE", Wide: true}},
		Rows: [][]string{{"red/r1-0123456789", strings.Repeat("why ", 60), strings.Repeat("more ", 60)}, {"blue/r1-0123456789", "Met.", "x"}}}
	for columns, fits := range map[int]bool{80: false, 200: false, 300: true, 0: true} {
		var out strings.Builder
		if err := output.Table.Write(output.On(&out, func() int { return columns }), list); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); columns > 0 && n > columns {
				t.Errorf("%d columns: a row of %d: %s", columns, n, line)
			}
		}
		if whole := !strings.Contains(out.String(), "…"); whole != fits {
			t.Errorf("%d columns: whole is %v\n%s", columns, whole, &out)
		}
		var wide strings.Builder
		if err := output.Wide.Write(output.On(&wide, func() int { return columns }), list); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(wide.String(), "…") {
			t.Errorf("%d columns: -o wide is cut", columns)
		}
	}
}

// What a table cannot show on a narrow screen gives way to its last column, which says why; a line across it is not a column.
func TestSpareColumns(t *testing.T) {
	list := output.List{Columns: []output.Column{{Head: "NAME"}, {Head: "ONE", Spare: true}, {Head: "TWO", Spare: true}, {Head: "WHY"}},
		Rows: [][]string{{"red", strings.Repeat("1", 20), strings.Repeat("2", 20), strings.Repeat("w", 40)}, {"---- a line across the table"}}}
	for columns, want := range map[int]string{40: "NAME  WHY", 60: "NAME  ONE                   WHY", 80: "NAME  ONE                   TWO                   WHY", 0: "NAME  ONE                   TWO                   WHY"} {
		var out strings.Builder
		if err := output.Table.Write(output.On(&out, func() int { return columns }), list); err != nil {
			t.Fatal(err)
		}
		if head, rest, _ := strings.Cut(out.String(), "\n"); head != want || !strings.HasSuffix(rest, "\n---- a line across the table\n") {
			t.Errorf("%d columns:\n%s", columns, &out)
		}
	}
}

// A sentence is not cut: it continues below its beginning, and below its row where the screen has no room beside it.
func TestFoldedColumns(t *testing.T) {
	list := output.List{Columns: []output.Column{{Head: "TIME"}, {Head: "CAUSE", Spare: true}, {Head: "WHY", Fold: true}},
		Rows: [][]string{{"08:00:00", "outranked", "need/blue/web outranks need/red/batch and takes its machine."}, {"08:00:01", "unused", output.Never}}}
	for columns, want := range map[int]string{
		0:  "TIME      CAUSE      WHY\n08:00:00  outranked  need/blue/web outranks need/red/batch and takes its machine.\n08:00:01  unused     —\n",
		60: "TIME      CAUSE      WHY\n08:00:00  outranked  need/blue/web outranks need/red/batch\n                     and takes its machine.\n08:00:01  unused     —\n",
		42: "TIME      WHY\n08:00:00  need/blue/web outranks\n          need/red/batch and takes its\n          machine.\n08:00:01  —\n",
		34: "TIME      CAUSE\n08:00:00  outranked\n  need/blue/web outranks\n    need/red/batch and takes its\n    machine.\n08:00:01  unused\n",
	} {
		var out strings.Builder
		if err := output.Table.Write(output.On(&out, func() int { return columns }), list); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%d columns:\n%swant\n%s", columns, &out, want)
		}
	}
}

// A sentence continues below where its text began, and a command in it stays whole.
func TestSentencesWrap(t *testing.T) {
	for in, want := range map[string]string{
		"Its release gate is open: nothing is lost.\n":         "Its release gate is open:\n  nothing is lost.\n",
		"warning     the operator of red is silent\n":          "warning     the operator of\n            red is silent\n",
		"  - give it room: `bigfleet plan --drop x`\n":         "  - give it room:\n    `bigfleet plan --drop x`\n",
		"`bigfleet plan --drop-cluster red --fail-on unmet`\n": "`bigfleet plan\n  --drop-cluster red\n  --fail-on unmet`\n",
		"short\n": "short\n",
	} {
		var out strings.Builder
		if _, err := output.On(&out, func() int { return 28 }).Write([]byte(in)); err != nil || out.String() != want {
			t.Errorf("%q, %v; want %q", out.String(), err, want)
		}
	}
}
