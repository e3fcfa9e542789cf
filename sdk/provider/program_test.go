package provider_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
)

// PROV-20.2, 20.8: what is wrong in a configuration is named in the words of its author, with the line where there is one,
// and ends the program with 2 before anything starts.
func TestWrongConfigurationsAreNamed(t *testing.T) {
	const offering = "offerings:\n- {name: a, instance_type: x, zone: z, capacity_type: on_demand, count: 1, price_per_hour: 1, resources: {cpu: \"4\"}}\n"
	for name, c := range map[string]struct {
		file string
		args []string
		want string
	}{
		"an unknown key":       {file: offering + "prise: 3\n", want: "line 3: prise is not a key of this file; --print-schema lists the keys"},
		"an unknown inner key": {file: offering + "timeouts: {creat: 3s}\n", want: "line 3: creat is not a key of this file"},
		"a wrong type":         {file: "seed_count: many\n", want: "line 1"},
		"a negative count":     {args: []string{"--seed-count", "-5"}, want: "seed_count: -5 must be at least 0"},
		"no id of a store":     {args: []string{"--seed-count", "5", "--adopt-store", "zz"}, want: "32 hexadecimal digits"},
		"half an id":           {args: []string{"--seed-count", "5", "--adopt-store", "00ff"}, want: "32 hexadecimal digits"},
		"no quantity":          {file: strings.Replace(offering, "\"4\"", "four", 1), want: "resources[cpu]"},
		"no offerings":         {want: "there are no offerings"},
		"a twin":               {file: offering + "- {name: a, instance_type: y, zone: z, capacity_type: on_demand, count: 1, price_per_hour: 1, resources: {cpu: \"4\"}}\n", want: "a"},
		"not an endpoint":      {file: offering + "otlp_endpoint: ftp://a:1\n", want: "https://host:port with TLS"},
		"too little":           {file: offering + "reconcile_interval: 1ms\nloss_rounds: 0\n", want: "reconcile_interval: 1ms is too small; the minimum is 10ms\nloss_rounds: 0 is too small; the minimum is 1"},
		"no address":           {args: []string{"--seed-count", "5", "--addr", ":99999"}, want: "addr: \":99999\" is not an address"},
		"an unknown recovery":  {file: offering + "recovery: perhaps\n", want: "neither fail nor resume"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := provider.Program[struct{}]{Name: "x", Fake: substrate.Fake[struct{}](substrate.Config{})}.Command()
			cmd.SetArgs(append([]string{"--config", file, "--use-fake-backend", "--state", "memory", "--check"}, c.args...))
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "struct {") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if code := provider.ExitCode(err); code != 2 || errors.Is(err, context.Canceled) {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// OPS-2.3: what is wrong with flags, whatever it is, is named at once and not one thing a start; with --print-config too, by which
// the command bigfleet looks again.
func TestWrongFlagsAreNamedTogether(t *testing.T) {
	defer func(before []string) { os.Args = before }(os.Args)
	t.Setenv("BIGFLEET_PROVIDER_LOG_LEVEL", "loud")
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown ones": {[]string{"--nope", "--addr", "x", "--tls-cert", "a", "--sede-count=5"},
			[]string{"unknown flag: --nope", "unknown flag: --sede-count", "addr: \"x\" is not an address", "--tls-cert is given without --tls-key and --tls-ca", "loud", "there are no offerings"}},
		"wrong values":     {[]string{"--seed-count=abc", "--reconcile-interval", "soon", "--tls-key=k"}, []string{"--seed-count", "--reconcile-interval", "--tls-key is given without"}},
		"a missing value":  {[]string{"--addr"}, []string{"flag needs an argument: --addr"}},
		"the next reader":  {[]string{"--print-config", "--addr", "x", "--tls-cert", "a"}, []string{"addr: \"x\"", "--tls-cert is given without"}},
		"nothing unlawful": {[]string{"--print-config", "--log-level", "warn", "--seed-count", "5", "--state", "memory"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			os.Args = append([]string{"provider"}, c.args...)
			cmd := provider.Program[struct{}]{Name: "x", Fake: substrate.Fake[struct{}](substrate.Config{})}.Command()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if code := provider.ExitCode(err); c.want != nil && code != 2 || c.want == nil && code != 0 {
				t.Errorf("exit code %d: %v", code, err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
}

// PROV-20.4, 20.6: the flags with their defaults; and without --state the state is a file in the data directory.
func TestFlags(t *testing.T) {
	cmd := provider.Program[struct{}]{Name: "x", Fake: substrate.Fake[struct{}](substrate.Config{})}.Command()
	for name, want := range map[string]string{
		"config": "", "addr": ":9000", "metrics-addr": ":9090", "provider": "x", "state": "", "data-dir": ".", "offerings": "", "seed-count": "0",
		"use-fake-backend": "false", "reconcile-interval": "2m0s", "reflection": "true", "tls-cert": "", "tls-key": "", "tls-ca": "", "require-tls": "false",
		"shard-san": "on", "adopt-store": "", "log-level": "info", "log-format": "text", "enable-pprof": "false", "otlp-endpoint": "", "control-addr": "",
	} {
		if f := cmd.Flags().Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("--%s: %+v, want the default %q", name, f, want)
		}
	}
	dir := t.TempDir()
	run := func(args ...string) (int, string) {
		cmd := provider.Program[struct{}]{Name: "x", Fake: substrate.Fake[struct{}](substrate.Config{})}.Command()
		cmd.SetArgs(append([]string{"--use-fake-backend", "--seed-count", "3", "--metrics-addr", ""}, args...))
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		if err != nil {
			out.WriteString(err.Error())
		}
		return provider.ExitCode(err), out.String()
	}
	// A port that is taken ends the start with the flag that moves it; the state file was opened before.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if code, say := run("--data-dir", dir, "--addr", l.Addr().String()); code != 2 || !strings.Contains(say, "is in use") || !strings.Contains(say, "--addr") {
		t.Errorf("a taken port: exit %d: %s", code, say)
	}
	if _, err := os.Stat(filepath.Join(dir, "provider.db")); err != nil {
		t.Errorf("no state file: %v", err)
	}
	// OPS-2.1: 0 is no address to listen on: it switches the port off, so what is in the way is the other one.
	if code, say := run("--state", "memory", "--addr", l.Addr().String(), "--metrics-addr", "0", "--control-addr", "0"); code != 2 || strings.Contains(say, "metrics") || !strings.Contains(say, "is in use") {
		t.Errorf("--metrics-addr 0: exit %d: %s", code, say)
	}
	if code, say := run("--state", "memory", "--addr", "127.0.0.1:0", "--metrics-addr", l.Addr().String()); code != 2 || !strings.Contains(say, "--metrics-addr") {
		t.Errorf("a taken metrics port: exit %d: %s", code, say)
	}
}

// deaf is a substrate that refuses connections.
type deaf struct{ provider.Backend }

func (deaf) Describe(context.Context, func(provider.Host) error) error {
	return errors.New("dial tcp 127.0.0.1:1: connection refused")
}

// PROV-20.3: --check asks the substrate once; one that does not answer is an error, with exit code 2.
func TestCheckAsksTheSubstrate(t *testing.T) {
	cmd := provider.Program[struct{}]{Name: "x", Build: func(context.Context, provider.Setup[struct{}]) (provider.Backend, []provider.Option, error) {
		return deaf{newCloud()}, []provider.Option{provider.WithReadiness(provider.NoReadiness())}, nil
	}}.Command()
	cmd.SetArgs([]string{"--seed-count", "5", "--state", "memory", "--check"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	if provider.ExitCode(err) != 2 || !strings.Contains(err.Error(), "connection refused") || strings.Contains(out.String(), "all well") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
