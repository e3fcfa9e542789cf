package output_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// Prices and ages go by value, what has not happened goes last either way, and names go along with their rows.
func TestSortByAColumn(t *testing.T) {
	list := func() output.List {
		return output.List{Columns: []output.Column{{Head: "NAME"}, {Head: "ON THE WAY"}}, Names: []string{"m/a", "m/b", "m/c", "m/d"},
			Rows: [][]string{{"a", "$9.00/h"}, {"b", output.Never}, {"c", "$10.00/h"}, {"d", "$0.10/h"}}}
	}
	for by, want := range map[string]string{"on-the-way": "m/d m/a m/c m/b", "-On The Way": "m/c m/a m/d m/b", "name": "m/a m/b m/c m/d", "-name": "m/d m/c m/b m/a"} {
		l := list()
		if err := l.Sort(by); err != nil || !slices.Equal(l.Names, strings.Fields(want)) {
			t.Errorf("by %s: %v, %v; want %s", by, l.Names, err, want)
		}
	}
	ages := output.List{Columns: []output.Column{{Head: "SINCE"}}, Names: strings.Fields("m/a m/b m/c m/d m/e m/f"),
		Rows: [][]string{{"1d02h"}, {"9s"}, {"12m04s"}, {output.AtLeast + "2m59s"}, {"23h59m"}, {output.Never}}}
	if err := ages.Sort("since"); err != nil || strings.Join(ages.Names, " ") != "m/b m/d m/c m/e m/a m/f" {
		t.Errorf("by age: %v, %v", ages.Names, err)
	}
	l := list()
	if err := l.Sort("colour"); err == nil || !strings.Contains(err.Error(), "use one of name, on-the-way") {
		t.Errorf("an unknown column: %v", err)
	}
}
