package skew_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
)

// OPS-10.1: distances are of minor versions; a build that is not a release cannot be compared, and is said to be none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		runs skew.Versions
		want skew.Verdict
	}{
		{skew.Versions{}, skew.Verdict{}},
		{skew.Versions{"a": "v1.2.3", "b": "1.2.9"}, skew.Verdict{Version: "v1.2"}},
		{skew.Versions{"a": "v1.9.0", "b": "v1.10.4", "c": "v1.10.0"}, skew.Verdict{Version: "v1.9", Minors: 1, Message: "b, c runs v1.10, a runs v1.9"}},
		{skew.Versions{"a": "v1.2.0", "b": "v2.2.0"}, skew.Verdict{Version: "v1.2", Minors: skew.Never, Message: "b runs v2.2, a runs v1.2"}},
		{skew.Versions{"a": "devel", "b": "v1.2.0"}, skew.Verdict{Version: "v1.2", Unknown: []string{"a (devel)"}}},
	} {
		if diff := cmp.Diff(c.want, c.runs.Judge()); diff != "" {
			t.Errorf("%v:\n%s", c.runs, diff)
		}
	}
	v := skew.Versions{}
	v.Add("a", "")
	if len(v) != 0 {
		t.Errorf("an empty version is kept: %v", v)
	}
}
