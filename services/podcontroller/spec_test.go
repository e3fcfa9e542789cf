package podcontroller

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/keeper"
)

// clause returns a clause of the operator specification.
func clause(t *testing.T, id string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/spec/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, from, found := strings.Cut(string(text), "\n- **"+id+"** ")
	if !found {
		t.Fatalf("the specification has no clause %s", id)
	}
	out, _, _ := strings.Cut(from, "\n")
	return out
}

// OP-15.21: every flag that the specification names exists, with its default.
func TestFlagsAreThoseOfTheSpecification(t *testing.T) {
	fs := NewCommand().Flags()
	named := regexp.MustCompile("`--([a-z][a-z-]+)(?: ([^`]+))?`").FindAllStringSubmatch(clause(t, "OP-15.21"), -1)
	if len(named) < 10 {
		t.Fatalf("the specification names %d flags", len(named))
	}
	for _, m := range named {
		f := fs.Lookup(m[1])
		if f == nil || m[2] != "" && strings.TrimSuffix(f.DefValue, "0s") != m[2] {
			t.Errorf("--%s: %v, want the default %q", m[1], f, m[2])
		}
	}
}

// OP-15.23: the outcomes that are counted are those of the specification.
func TestOutcomesAreThoseOfTheSpecification(t *testing.T) {
	_, list, _ := strings.Cut(clause(t, "OP-15.23"), ": ")
	want := strings.Split(strings.TrimSuffix(list, "."), ", ")
	have := map[string]bool{}
	for _, o := range keeper.Outcomes() {
		have[o] = true
	}
	for _, o := range want {
		if !have[o] {
			t.Errorf("outcome %s is not counted", o)
		}
	}
	if len(have) != len(want) {
		t.Errorf("counted are %v, the specification has %v", keeper.Outcomes(), want)
	}
}

// OP-15.21: what cannot work is refused with the flag's name: at the edge it is taken, one past it it is not.
func TestWrongFlags(t *testing.T) {
	for want, c := range map[string]Config{
		"--workers 257":                 {Workers: 257},
		"--workers -1":                  {Workers: -1},
		"--cache-sync-timeout -1s":      {CacheSyncTimeout: -time.Second},
		"--unmanaged-node-selector":     {UnmanagedNodeSelector: "a in"},
		"--best-effort-floor: \"cpu\"":  {BestEffortFloor: "cpu"},
		"is not a quantity of cpu":      {BestEffortFloor: "cpu=lots"},
		"is not a quantity of memory":   {BestEffortFloor: "cpu=1,memory=-1Gi"},
		"want name=quantity, as in cpu": {BestEffortFloor: "=1"},
	} {
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	for _, c := range []Config{{}, {Workers: 1}, {Workers: 256}, {BestEffortFloor: "cpu=0"}, {BestEffortFloor: "cpu=1, memory=1Gi"}} {
		if err := c.check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
