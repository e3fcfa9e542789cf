package config_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

// role is a command with one flag of each type that roles use.
type role struct {
	shared    config.Shared
	shardAddr string
	interval  time.Duration
	workers   int
	dryRun    bool
	fraction  float64
	peers     []string
	providers []string
	classes   map[string]string
	maxBytes  int64
	token     string

	ran  bool
	out  bytes.Buffer
	args []string
	env  map[string]string
}

func (r *role) execute(t *testing.T) error {
	t.Helper()
	cmd := &cobra.Command{Use: "operator", Args: config.NoArgs}
	fs := cmd.Flags()
	r.shared.Bind(fs, ":8770")
	fs.StringVar(&r.shardAddr, "shard-addr", "", "the shard")
	fs.DurationVar(&r.interval, "rollup-interval", 10*time.Second, "heartbeat")
	fs.IntVar(&r.workers, "workers", 16, "workers")
	fs.BoolVar(&r.dryRun, "dry-run", false, "decide only")
	fs.Float64Var(&r.fraction, "reclaim-cap-fraction", 0.05, "cap")
	fs.StringSliceVar(&r.peers, "peers", []string{"a:1"}, "peers")
	fs.StringArrayVar(&r.providers, "provider-addr", nil, "providers")
	fs.StringToStringVar(&r.classes, "priority-classes", nil, "classes")
	config.BytesVar(fs, &r.maxBytes, "max-rollup-bytes", 16<<20, "limit")
	fs.StringVar(&r.token, "token", "", "a secret")
	config.MarkSecret(fs, "token")
	// A parent's flags are not settings of the role.
	root := &cobra.Command{Use: "bigfleet"}
	root.PersistentFlags().String("context", "", "CLI context")
	root.AddCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{
			Role: "operator", Command: cmd, Shared: &r.shared,
			LookupEnv: func(name string) (string, bool) { v, ok := r.env[name]; return v, ok },
			Check: func() error {
				if r.shardAddr == "" {
					return errors.New("--shard-addr is required")
				}
				return config.CheckDial("shard-addr", r.shardAddr)
			},
		}.Load()
		r.ran = err == nil && !printed
		return err
	}
	root.SetOut(&r.out)
	root.SetErr(&r.out)
	return process.ExecuteContext(t.Context(), root, append([]string{"operator"}, r.args...))
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// OPS-2.2: a file that cannot be read is the only problem worth naming, for it may hold what seems to be missing; an argument
// is refused as one.
func TestOneMistakeOneProblem(t *testing.T) {
	for want, args := range map[string][]string{
		"--config: open /does/not/exist": {"--config", "/does/not/exist"},
		`unexpected argument "7780"`:     {"--shard-addr", "x:1", "7780"},
		"--shard-addr is required":       nil,
	} {
		err := (&role{args: args}).execute(t)
		var bad *config.Error
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || !strings.Contains(err.Error(), want) || process.ExitCode(err) != 2 {
			t.Errorf("%q: %v, want one problem that says %q", args, err, want)
		}
	}
}

// OPS-2.3: what cannot be parsed hides nothing else that is wrong: with flags, with what goes together, with environment and file.
func TestWrongFlagsAllAtOnce(t *testing.T) {
	path := file(t, "dry-runn: true\n")
	r := &role{
		args: []string{"--provider-addr", "a:1", "--config", path, "--workrs", "3", "--workers=many", "--rollup-interval", "soon", "extra", "-x", "--tls-cert", "a.crt", "--peers", "p:1,q:1", "--dry-run=perhaps", "--shard-addr"},
		env:  map[string]string{"BIGFLEET_OPERATOR_RECLAIM_CAP_FRACTION": "lots"},
	}
	err := r.execute(t)
	var all *config.Error
	if !errors.As(err, &all) || process.ExitCode(err) != 2 || r.ran {
		t.Fatalf("%v (exit code %d)", err, process.ExitCode(err))
	}
	for _, want := range []string{
		`unknown flag: --workrs, did you mean "workers"?`, `--workers: "many" is not a valid int`, `--rollup-interval: "soon" is not a valid duration`,
		`unexpected argument "extra"`, `unknown flag: -x`, `--dry-run: "perhaps" is not a valid bool`, `--shard-addr has no value`,
		`--tls-cert is given without --tls-key and --tls-ca`, `config.yaml:1:1: unknown setting "dry-runn"`, `BIGFLEET_OPERATOR_RECLAIM_CAP_FRACTION: "lots"`, "--shard-addr is required",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no problem says %q in\n%v", want, err)
		}
	}
	if len(all.Problems) != 11 || strings.Contains(all.OneLine(), "\n") {
		t.Errorf("%d problems, on one line %q", len(all.Problems), all.OneLine())
	}
	if !slices.Equal(r.providers, []string{"a:1"}) || !slices.Equal(r.peers, []string{"p:1", "q:1"}) {
		t.Errorf("lists are taken twice: %v, %v", r.providers, r.peers)
	}
	if r.interval != 10*time.Second {
		t.Errorf("a wrong text leaves %v, not the default", r.interval)
	}
	if out := r.out.String(); strings.Contains(out, "workers:") {
		t.Errorf("a configuration was printed:\n%s", out)
	}
}

// OPS-2.1: 0 is off for the port of metrics, and so is an empty address.
func TestMetricsOff(t *testing.T) {
	for _, off := range []string{"0", ""} {
		if err := (&role{args: []string{"--shard-addr", "x:1", "--metrics-addr", off}}).execute(t); err != nil {
			t.Errorf("--metrics-addr %q: %v", off, err)
		}
	}
}

// OPS-2.2: flag, environment, file, default, in this order, for every type.
func TestPrecedence(t *testing.T) {
	path := file(t, `
shard-addr: file:1
rollup-interval: 3s
workers: 3
dry-run: true
reclaim-cap-fraction: 0.3
peers: [f1:1, f2:1]
provider-addr:
  - sim=f:9000
  - kwok=g:9000
priority-classes: {gold: "10", silver: 5}
max-rollup-bytes: 3MiB
log-format: json
`)
	t.Run("defaults", func(t *testing.T) {
		r := &role{args: []string{"--shard-addr", "x:1"}}
		if err := r.execute(t); err != nil || !r.ran {
			t.Fatal(err)
		}
		if r.interval != 10*time.Second || r.workers != 16 || r.dryRun || r.maxBytes != 16<<20 || !slices.Equal(r.peers, []string{"a:1"}) || r.shared.MetricsAddr != ":8770" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("file", func(t *testing.T) {
		r := &role{args: []string{"--config", path}}
		if err := r.execute(t); err != nil {
			t.Fatal(err)
		}
		if r.shardAddr != "file:1" || r.interval != 3*time.Second || r.workers != 3 || !r.dryRun || r.fraction != 0.3 ||
			!slices.Equal(r.peers, []string{"f1:1", "f2:1"}) || !slices.Equal(r.providers, []string{"sim=f:9000", "kwok=g:9000"}) ||
			r.classes["gold"] != "10" || r.classes["silver"] != "5" || r.maxBytes != 3<<20 || r.shared.LogFormat != "json" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("environment over file", func(t *testing.T) {
		r := &role{env: map[string]string{
			"BIGFLEET_OPERATOR_CONFIG": path, "BIGFLEET_OPERATOR_SHARD_ADDR": "env:1", "BIGFLEET_OPERATOR_WORKERS": "5", "BIGFLEET_OPERATOR_PEERS": "e:1,e:2",
			"BIGFLEET_OPERATOR_PORT": "tcp://10.0.0.1:7780", "BIGFLEET_OPERATOR_CONTEXT": "not a setting",
		}}
		if err := r.execute(t); err != nil {
			t.Fatal(err)
		}
		if r.shardAddr != "env:1" || r.workers != 5 || !slices.Equal(r.peers, []string{"e:1", "e:2"}) || r.interval != 3*time.Second {
			t.Errorf("%+v", r)
		}
	})
	t.Run("flag over all", func(t *testing.T) {
		r := &role{
			args: []string{"--config", path, "--shard-addr=flag:1", "--workers=7", "--peers=p:1", "--dry-run=false"},
			env:  map[string]string{"BIGFLEET_OPERATOR_WORKERS": "5", "BIGFLEET_OPERATOR_SHARD_ADDR": "env:1"},
		}
		if err := r.execute(t); err != nil {
			t.Fatal(err)
		}
		if r.shardAddr != "flag:1" || r.workers != 7 || !slices.Equal(r.peers, []string{"p:1"}) || r.dryRun {
			t.Errorf("%+v", r)
		}
	})
}

// OPS-2.2, OPS-2.3: everything wrong at once, exit code 2, unknown keys with line and column.
func TestAllProblemsAtOnce(t *testing.T) {
	path := file(t, strings.Join([]string{
		"shard-adr: x:1",       // 1: a typing error
		"workers: many",        // 2
		"  ",                   // 3
		"dry-run: [true]",      // 4: a list for one value
		"peers: {a: b}",        // 5: a mapping for a list
		"log-level: loud",      // 6
		"workers: 4",           // 7: twice
		"config: other.yaml",   // 8: the file names no file
		"metrics-addr: here",   // 9
		"token: [very-secret]", // 10
		"rollup-interval:",     // 11: no value
	}, "\n"))
	r := &role{
		args: []string{"--config", path, "--tls-cert", "a.crt"},
		env:  map[string]string{"BIGFLEET_OPERATOR_RECLAIM_CAP_FRACTION": "lots"},
	}
	err := r.execute(t)
	var all *config.Error
	if !errors.As(err, &all) || process.ExitCode(err) != 2 || r.ran {
		t.Fatalf("%v (exit code %d)", err, process.ExitCode(err))
	}
	for _, want := range []string{
		`config.yaml:1:1: unknown setting "shard-adr", did you mean "shard-addr"?`,
		`config.yaml:2:10: workers: "many" is not a valid int`,
		`config.yaml:4:10: dry-run: takes one value, not a list`,
		`config.yaml:5:8: peers: takes no mapping`,
		`--log-level "loud": want debug, info, warn or error`,
		`config.yaml:7:1: "workers" is set twice, first in line 2`,
		`config.yaml:8:1: unknown setting "config"`,
		`--metrics-addr "here": want host:port, :port, or 0 for off`,
		`config.yaml:10:8: token: takes one value, not a list`,
		`config.yaml:11:17: rollup-interval: has no value`,
		`BIGFLEET_OPERATOR_RECLAIM_CAP_FRACTION: "lots" is not a valid float64`,
		`--tls-cert is given without --tls-key and --tls-ca`,
		`--shard-addr is required`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	if len(all.Problems) != 13 {
		t.Errorf("%d problems, want 13", len(all.Problems))
	}
}

// A file that is not ours is refused in one line, an empty one is fine.
func TestFiles(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty":            {"", ""},
		"only comments":    {"# nothing\n", ""},
		"null":             {"---\n~\n", ""},
		"anchors":          {"shard-addr: &a x:1\npeers: [*a]\n", ""},
		"list":             {"- a\n", "want settings as `name: value`"},
		"two documents":    {"workers: 1\n---\nworkers: 2\n", "more than one YAML document"},
		"broken":           {"workers: [1\n", "config.yaml: yaml:"},
		"huge":             {strings.Repeat("#", 1<<20+1), "larger than 1 MiB"},
		"nested":           {"peers: [[a]]\n", "want plain values"},
		"parent's flag":    {"context: x\n", `unknown setting "context"`},
		"loses, but wrong": {"shard-addr: [a]\n", "takes one value"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &role{args: []string{"--config", file(t, test.text), "--shard-addr", "x:1"}}
			err := r.execute(t)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	r := &role{args: []string{"--config", filepath.Join(t.TempDir(), "none.yaml"), "--shard-addr", "x:1"}}
	if err := r.execute(t); !errors.Is(err, os.ErrNotExist) || process.ExitCode(err) != 2 {
		t.Error(err)
	}
}

// OPS-2.2: --print-config prints effective values with the source of each, secrets masked, and nothing runs. What it
// prints is a file that gives the same values.
func TestPrintConfig(t *testing.T) {
	path := file(t, "workers: 3\npeers: [f1:1, f2:1]\nmax-rollup-bytes: 3MiB\ntoken: hunter2\npriority-classes: {odd: \"a,b=c\", gold: 1}\n")
	r := &role{
		args: []string{"--config", path, "--shard-addr", "x:1", "--print-config"},
		env:  map[string]string{"BIGFLEET_OPERATOR_ROLLUP_INTERVAL": "5s"},
	}
	if err := r.execute(t); err != nil || r.ran {
		t.Fatalf("%v, ran %v", err, r.ran)
	}
	got := r.out.String()
	for _, want := range []string{
		"shard-addr: x:1 # flag\n", "rollup-interval: 5s # env BIGFLEET_OPERATOR_ROLLUP_INTERVAL\n", "workers: 3 # file " + path + ":1\n",
		"max-rollup-bytes: 3MiB # file " + path + ":3\n", "dry-run: false # default\n", "peers: ['f1:1', 'f2:1'] # file " + path + ":2\n", "token: '***' # file",
		"priority-classes: {gold: \"1\", odd: 'a,b=c'} # file", "metrics-addr: :8770 # default\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q", want)
		}
	}
	if strings.Contains(got, "hunter2") || strings.Contains(got, "print-config") || strings.Contains(got, "context") {
		t.Error("a secret, or what is no setting, was printed")
	}
	if t.Failed() {
		t.Log(got)
	}
	again := &role{args: []string{"--config", file(t, got)}}
	if err := again.execute(t); err != nil {
		t.Fatalf("the printed file is refused: %v\n%s", err, got)
	}
	if again.shardAddr != "x:1" || again.interval != 5*time.Second || again.maxBytes != 3<<20 || !slices.Equal(again.peers, r.peers) || again.classes["gold"] != "1" || again.classes["odd"] != "a,b=c" {
		t.Errorf("the printed file gives %+v", again)
	}
}

// The texts of wrong secrets stay out of errors.
func TestSecretsStayOut(t *testing.T) {
	r := &role{args: []string{"--shard-addr", "x:1"}}
	r.env = map[string]string{"BIGFLEET_OPERATOR_CONFIG": file(t, "token: {a: hunter2}\n")}
	if err := r.execute(t); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// SHARD-22.1: --require-tls turns plaintext into a start error; partial TLS flags always are one.
func TestTLSFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--require-tls"}, "--require-tls is set"},
		{[]string{"--tls-cert=a", "--tls-key=b"}, "without --tls-ca"},
		{[]string{"--tls-cert=a", "--tls-key=b", "--tls-ca=c", "--require-tls"}, ""},
	} {
		r := &role{args: append(test.args, "--shard-addr=x:1")}
		err := r.execute(t)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || process.ExitCode(err) != 2) {
			t.Errorf("%v: %v, want %q", test.args, err, test.want)
		}
	}
}

// Kubernetes sets BIGFLEET_SHARD_PORT and the like beside Services of that name, so no flag may have such a name.
func TestNamesThatKubernetesTakes(t *testing.T) {
	for _, name := range []string{"port", "service-host", "port-7780-tcp"} {
		cmd := &cobra.Command{Use: "shard"}
		var shared config.Shared
		shared.Bind(cmd.Flags(), "0")
		cmd.Flags().String(name, "", "")
		if _, err := (config.Loader{Role: "shard", Command: cmd, Shared: &shared}).Load(); err == nil {
			t.Errorf("--%s was taken", name)
		}
	}
	if got := config.EnvName("provider kwok", "max-rollup-bytes"); got != "BIGFLEET_PROVIDER_KWOK_MAX_ROLLUP_BYTES" {
		t.Error(got)
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "512B": 512, "1KiB": 1 << 10, "16MiB": 16 << 20, "4GiB": 4 << 30, "2TiB": 2 << 40, "8388607TiB": 8388607 << 40} {
		var b config.Bytes
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q = %d, %v", text, b, err)
		}
		var again config.Bytes
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%q prints as %q, which is %d", text, b.String(), again)
		}
	}
	for _, wrong := range []string{"", "x", "-1", "1.5GiB", "16MB", "8388608TiB", "9223372036854775808", "MiB"} {
		var b config.Bytes
		if b.Set(wrong) == nil {
			t.Errorf("%q was taken as %d", wrong, b)
		}
	}
}

// OPS-2.3: a number that somebody sets and that the setting cannot mean is refused by its name, from wherever it comes. The default of a
// setting, and a zero that its help explains, are not.
func TestNumbersThatNoSettingMeans(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string // "" is accepted
	}{
		{args: []string{"--workers", "0"}, want: "--workers 0: want more than 0"},
		{args: []string{"--workers=-3"}, want: "--workers -3: want no negative value"},
		{env: map[string]string{"BIGFLEET_OPERATOR_WORKERS": "0"}, want: "--workers 0: want more than 0"},
		{args: []string{"--rollup-interval", "3ns"}, want: "--rollup-interval 3ns: want 1ms to ten years"},
		{args: []string{"--rollup-interval", "999999h"}, want: "want 1ms to ten years"},
		{args: []string{"--reclaim-cap-fraction", "NaN"}, want: "--reclaim-cap-fraction NaN: want a number"},
		{args: []string{"--workers", "1", "--rollup-interval", "1ms"}},
	} {
		r := &role{args: append(c.args, "--shard-addr", "x:1"), env: c.env}
		err := r.execute(t)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v %v: %v, want %q", c.args, c.env, err, c.want)
		}
	}
}
