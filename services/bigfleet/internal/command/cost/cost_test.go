package cost

import (
	"slices"
	"strings"
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func row(state string, dollars float64, group ...string) *bigfleetv1alpha1.CostRow {
	return &bigfleetv1alpha1.CostRow{Group: group, Machines: 1, CostPerHourByState: map[string]float64{"MACHINE_STATE_" + state: dollars}}
}

// OPS-4.19: what must not be interrupted on spot, and fixed capacity that is idle beside purchases, are named; neither alone is.
func TestOddities(t *testing.T) {
	const pinned, cheap = "8589934592", "4"
	for _, c := range []struct {
		name string
		rows []*bigfleetv1alpha1.CostRow
		want []string
	}{
		{"pinned on spot", []*bigfleetv1alpha1.CostRow{row("CONFIGURED", 2, "spot", pinned)}, []string{"1 spot machine ($2.00/h) serve what must not be interrupted"}},
		{"pinned on demand", []*bigfleetv1alpha1.CostRow{row("CONFIGURED", 2, "on-demand", pinned), row("CONFIGURED", 1, "spot", cheap)}, nil},
		{"idle beside purchases", []*bigfleetv1alpha1.CostRow{row("IDLE", 3, "reserved", "0"), row("CREATING", 1, "spot", cheap)}, []string{"fixed capacity for $3.00/h is idle while other machines for $1.00/h are on their way"}},
		{"idle, and others go", []*bigfleetv1alpha1.CostRow{row("IDLE", 3, "bare-metal", "0"), row("DELETING", 1, "spot", cheap)}, nil},
		{"idle alone", []*bigfleetv1alpha1.CostRow{row("IDLE", 3, "bare-metal", "0"), row("CREATING", 1, "bare-metal", cheap)}, nil},
	} {
		groups := map[string]*sum{}
		add(groups, c.rows)
		got := oddities(groups)
		if len(got) != len(c.want) || len(got) == 1 && !strings.Contains(got[0], c.want[0]) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// One row in the order of its columns.
func TestRow(t *testing.T) {
	groups := map[string]*sum{}
	add(groups, []*bigfleetv1alpha1.CostRow{row("CONFIGURED", 2, "red"), row("IDLE", 1, "blue")})
	if got := sorted(groups); len(got) != 2 || !slices.Equal(got[0].row(), []string{"red", "1", "$2.00/h", "$0.00/h", "$0.00/h", "$2.00/h"}) {
		t.Errorf("rows %v", got[0].row())
	}
}
