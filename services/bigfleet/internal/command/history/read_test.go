package history

import (
	"slices"
	"testing"
)

// OPS-4.15: of the machines behind a Node those that are left out are counted, and nothing is left out of a list that fits.
func TestMachinesLeftOut(t *testing.T) {
	for _, c := range []struct {
		ids, shown []string
		left       int
	}{
		{[]string{"a", "a", "b"}, []string{"a", "b"}, 0},
		{[]string{"b", "a"}, []string{"b", "a"}, 0},
		{[]string{"a", "b", "a", "c", "d"}, []string{"a", "b"}, 2},
	} {
		if shown, left := distinct(c.ids, 2); !slices.Equal(shown, c.shown) || left != c.left {
			t.Errorf("of %v %v are shown and %d are left, want %v and %d", c.ids, shown, left, c.shown, c.left)
		}
	}
}
