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
// OPS-2.1: each has the shared flags and prints its configuration. OPS-2.3: each ends with 2 and names all that is wrong.
func TestEveryRole(t *testing.T) {
	line := func(words string) (string, exit.Code) {
		var out, err bytes.Buffer
		e := env.Env{In: strings.NewReader(""), Out: &out, Err: &err, Getenv: func(string) string { return "" }}
		code := cli.Main(t.Context(), e, strings.Fields(words))
		return out.String() + err.String(), code
	}
	for _, r := range []struct{ role, flag, needed string }{
		{"shard", "provider-addr", "--provider-addr 127.0.0.1:9000"}, {"coordinator", "raft-bind", ""}, {"operator", "cluster-id", "--cluster-id red --shard-addr 127.0.0.1:7780"},
		{"podcontroller", "unmanaged-node-selector", ""}, {"console", "behind-proxy", ""}, {"unschedulable-pod-controller", "unmanaged-node-selector", ""}, {"provider kwok", "seed-count", ""}, {"provider sim", "seed-count", ""},
	} {
		if out, code := line(r.role + " --help"); code != exit.OK || !strings.Contains(out, "--"+r.flag) {
			t.Errorf("%s --help: code %d, no flag %s:\n%s", r.role, code, r.flag, out)
		}
		for _, flag := range []string{"config", "log-format", "log-level", "metrics-addr", "enable-pprof", "otlp-endpoint", "tls-cert", "tls-key", "tls-ca", "require-tls", "print-config"} {
			if out, _ := line(r.role + " --help"); !strings.Contains(out, "--"+flag+" ") {
				t.Errorf("%s has no flag --%s", r.role, flag)
			}
		}
		if out, _ := line(r.role + " --help"); strings.Contains(out, "Global Flags") {
			t.Errorf("%s --help shows flags that it does not take:\n%s", r.role, out)
		}
		if out, code := line(r.role + " --kube-context x " + r.needed); code != exit.Usage || !strings.Contains(out, "--kube-context is for client commands") {
			t.Errorf("%s --kube-context x: code %d, want %d: %s", r.role, code, exit.Usage, out)
		}
		if out, code := line(r.role + " --no-such-flag"); code != exit.Usage || !strings.Contains(out, "no-such-flag") {
			t.Errorf("%s --no-such-flag: code %d, want %d: %s", r.role, code, exit.Usage, out)
		}
		// OPS-2.3: all of it, on the one line there is (OPS-4.9).
		if out, code := line(r.role + " --no-such-flag --nor-this 3 --enable-pprof=perhaps"); code != exit.Usage || strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, "--no-such-flag") || !strings.Contains(out, "--nor-this") || !strings.Contains(out, `--enable-pprof: "perhaps" is not a valid bool`) || !strings.Contains(out, " --help` shows the flags") {
			t.Errorf("%s with three wrong flags: code %d, want %d and all of them on a line: %s", r.role, code, exit.Usage, out)
		}
		if out, code := line(r.role + " --tls-cert x --log-level loud " + r.needed); code != exit.Usage || strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, "--tls-cert is given without --tls-key and --tls-ca") || !strings.Contains(out, `"loud"`) {
			t.Errorf("%s with a part of TLS and a wrong level: code %d, want %d and both on a line: %s", r.role, code, exit.Usage, out)
		}
		if out, code := line(r.role + " --print-config " + r.needed); code != exit.OK || !strings.Contains(strings.ReplaceAll(out, "_", "-"), "metrics-addr: ") {
			t.Errorf("%s --print-config: code %d:\n%s", r.role, code, out)
		}
	}
	out, _ := line("roles")
	for _, role := range []string{"shard", "coordinator", "operator", "podcontroller", "console", "provider kwok", "provider sim"} {
		if !strings.Contains(out, "bigfleet "+role+" ") {
			t.Errorf("`bigfleet roles` does not name %s:\n%s", role, out)
		}
	}
}
