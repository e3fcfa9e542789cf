package explain

import "testing"

// OP-6.3: acknowledgements are paced, so a request that is pending may have its row. Only its own cluster's row counts then: another
// cluster with an equal row proves nothing.
func TestWhoseRowIsIt(t *testing.T) {
	for _, c := range []struct {
		clusters []string
		pending  bool
		want     string
	}{
		{[]string{"blue", "red"}, false, "red"},
		{[]string{"blue", "red"}, true, "red"},
		{[]string{"blue"}, false, "blue"},
		{[]string{"blue"}, true, ""},
		{[]string{"blue", "green"}, false, ""},
		{nil, true, ""},
	} {
		w := walk{context: "red"}
		if got := w.owner(c.clusters, c.pending); got != c.want {
			t.Errorf("of %v, pending %v: %q, want %q", c.clusters, c.pending, got, c.want)
		}
	}
}
