package output_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// OPS-4.1: on a terminal no row of a table wraps. -o wide, and what is not a terminal, show all of it.
func TestTablesFitTheScreen(t *testing.T) {
	list := output.List{Columns: []output.Column{{Head: "NAME"}, {Head: "WHY"}, {Head: "MORE", Wide: true}},
		Rows: [][]string{{"red/r1-0123456789", strings.Repeat("why ", 60), strings.Repeat("more ", 60)}, {"blue/r1-0123456789", "Covered.", "x"}}}
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
