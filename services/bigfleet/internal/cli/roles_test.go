package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-1.1: the one binary holds every role, each under the name that the specification gives it, with the flags of its own.
// OPS-2.1: each prints its configuration. OPS-2.3: each ends with 2 for a flag that it does not know.
func TestEveryRole(t *testing.T) {
	line := func(words string) (string, exit.Code) {
		var out, err bytes.Buffer
		e := env.Env{In: strings.NewReader(""), Out: &out, Err: &err, Getenv: func(string) string { return "" }}
		code := cli.Main(t.Context(), e, strings.Fields(words))
		return out.String() + err.String(), code
	}
	for _, r := range []struct{ role, flag, needed string }{
		{"shard", "provider-addr", "--provider-addr 127.0.0.1:9000"}, {"coordinator", "raft-bind", ""}, {"operator", "cluster-id", "--cluster-id red --shard-addr 127.0.0.1:7780"},
		{"podcontroller", "unmanaged-node-selector", ""}, {"unschedulable-pod-controller", "unmanaged-node-selector", ""}, {"provider kwok", "seed-count", ""}, {"provider sim", "seed-count", ""},
	} {
		if out, code := line(r.role + " --help"); code != exit.OK || !strings.Contains(out, "--"+r.flag) {
			t.Errorf("%s --help: code %d, no flag %s:\n%s", r.role, code, r.flag, out)
		}
		if out, _ := line(r.role + " --help"); strings.Contains(out, "Global Flags") {
			t.Errorf("%s --help shows flags that it does not take:\n%s", r.role, out)
		}
		if out, code := line(r.role + " --kube-context x " + r.needed); code != exit.Usage || !strings.Contains(out, "--kube-context is for the verbs that ask") {
			t.Errorf("%s --kube-context x: code %d, want %d: %s", r.role, code, exit.Usage, out)
		}
		if out, code := line(r.role + " --no-such-flag"); code != exit.Usage || !strings.Contains(out, "no-such-flag") {
			t.Errorf("%s --no-such-flag: code %d, want %d: %s", r.role, code, exit.Usage, out)
		}
		if out, code := line(r.role + " --print-config " + r.needed); code != exit.OK || !strings.Contains(strings.ReplaceAll(out, "_", "-"), "metrics-addr: ") {
			t.Errorf("%s --print-config: code %d:\n%s", r.role, code, out)
		}
	}
	out, _ := line("roles")
	for _, role := range []string{"shard", "coordinator", "operator", "podcontroller", "provider kwok", "provider sim"} {
		if !strings.Contains(out, "bigfleet "+role+" ") {
			t.Errorf("`bigfleet roles` does not name %s:\n%s", role, out)
		}
	}
}
