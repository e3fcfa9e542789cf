package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"github.com/spf13/cobra"
)

// flags of the command.
type flags struct {
	profiles, clusters, only []string
	blobFile                 string
	cert, key, ca            string
	controlAddr              string
	kill, stop, start, lose  string
	ready                    string
	certs                    string
	settle, limit, watch     time.Duration
	seed                     uint64
	size                     int
	soak                     time.Duration
	slack                    float64
	report                   string
	plan, quiet              bool
}

// Command is the suite as a program: "conformance ADDR". It exits 0 when the provider conforms, 1 when it does not, 2 when
// the suite could not say.
func Command() *cobra.Command {
	f := flags{}
	cmd := &cobra.Command{
		Use: "bigfleet-conformance ADDR", Short: "Certify a capacity provider at an address", Args: cobra.ExactArgs(1),
		SilenceUsage: true, SilenceErrors: true, Version: Version,
		Example: Examples("bigfleet-conformance"),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flag := cmd.Flags()
	flag.StringSliceVar(&f.profiles, "profile", []string{"core"}, "profiles that the provider claims: core, cloud, spot, bare-metal, fault, durable, scale")
	flag.StringSliceVar(&f.clusters, "cluster", nil, "cluster ids to use for Configure, at least two")
	flag.StringSliceVar(&f.only, "only", nil, "run only these behaviours (area/what) or areas")
	flag.Uint64Var(&f.seed, "seed", 0, "seed of the random behaviours; 0 picks one at random")
	flag.StringVar(&f.blobFile, "blob", "", "file with the boot data to send")
	flag.StringVar(&f.cert, "tls-cert", "", "certificate of a shard (PEM)")
	flag.StringVar(&f.key, "tls-key", "", "key of --tls-cert (PEM)")
	flag.StringVar(&f.ca, "tls-ca", "", "CA bundle that verifies the provider (PEM)")
	flag.StringVar(&f.certs, "certs", "", "command that takes bigfleet:// SANs as arguments and prints three lines: certificate file, key file, CA file")
	flag.StringVar(&f.controlAddr, "control-addr", "", "address of the simulated cloud's SubstrateControl, for profile fault")
	flag.StringVar(&f.kill, "kill", "", "command that kills the provider at once (kill -9), for profile durable")
	flag.StringVar(&f.stop, "stop", "", "command that stops the provider gracefully")
	flag.StringVar(&f.start, "start", "", "command that starts the provider again and returns; it may print the new address")
	flag.StringVar(&f.lose, "lose-store", "", "command that removes the provider's state while it is stopped")
	flag.StringVar(&f.ready, "ready", "", "command that takes on or off: on lets nodes become Ready, off prevents it")
	flag.DurationVar(&f.settle, "settle", time.Minute, "time limit of one transition")
	flag.DurationVar(&f.limit, "limit", 0, "the provider's own time limit of a transition; defaults to what GetProvider states")
	flag.DurationVar(&f.watch, "watch", time.Second, "how long to watch that nothing changes, in behaviours that require it")
	flag.IntVar(&f.size, "size", 0, "number of machines that profile scale requires")
	flag.DurationVar(&f.soak, "soak", 0, "repeat all repeatable behaviours for this long, each pass with another seed")
	flag.Float64Var(&f.slack, "slack", 1, "multiply the time limits of profile scale by this factor, for a busy test machine")
	flag.StringVar(&f.report, "report", "", "directory for report.json, junit.xml, badge.json and report.txt")
	flag.BoolVar(&f.plan, "plan", false, "list what would run and how many machines it needs, and run nothing")
	flag.BoolVar(&f.quiet, "quiet", false, "print no line per behaviour")
	return cmd
}

// Examples are the examples of the command, under the name that a caller mounts it with.
func Examples(name string) string {
	return strings.ReplaceAll(`  NAME 127.0.0.1:9000
  NAME 127.0.0.1:9000 --profile core,cloud,spot,fault --control-addr 127.0.0.1:9001
  NAME 127.0.0.1:9000 --profile core,durable --kill ./kill.sh --start ./start.sh --report out
  NAME 127.0.0.1:9000 --only fence/negative --seed 7`, "NAME", name)
}

// verdictError carries the exit code of a run.
type verdictError struct{ report *Report }

func (e *verdictError) Error() string { return string(e.report.Verdict) }

// ExitCode is the exit code for the error of Command: 0, 1 or 2.
func ExitCode(err error) int {
	var v *verdictError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &v):
		return v.report.ExitCode()
	}
	return 2
}

func (f *flags) run(cmd *cobra.Command, addr string) error {
	t, err := f.target(addr)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.plan {
		return plan(out, t)
	}
	o := Options{Only: f.only, Seed: f.seed, Soak: f.soak}
	if !f.quiet {
		o.Each = func(r Result) {
			line := fmt.Sprintf("%-16s %-32s %8s", r.Outcome, r.Name, r.Took.Round(time.Millisecond))
			if r.Outcome != Pass {
				line += "  " + short(r.Reason)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), line)
		}
	}
	report, err := Execute(cmd.Context(), t, o)
	if err != nil {
		return err
	}
	if err := report.WriteText(out); err != nil {
		return err
	}
	if f.report != "" {
		if err := report.save(f.report); err != nil {
			return err
		}
	}
	if report.Verdict != Conformant {
		return &verdictError{report}
	}
	return nil
}

func (r *Report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		"report.json": r.WriteJSON, "junit.xml": r.WriteJUnit, "badge.json": r.WriteBadge, "report.txt": r.WriteText,
	} {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(write(file), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (f *flags) target(addr string) (Target, error) {
	t := Target{Addr: addr, Clusters: f.clusters, Settle: f.settle, Limit: f.limit, Watch: f.watch, Size: f.size, Slack: f.slack}
	for _, p := range f.profiles {
		t.Profiles = append(t.Profiles, Profile(p))
	}
	if f.blobFile != "" {
		blob, err := os.ReadFile(f.blobFile)
		if err != nil {
			return t, err
		}
		t.Blob = blob
	}
	files := identity.Files{Cert: f.cert, Key: f.key, CA: f.ca}
	on, err := files.Enabled()
	if err != nil {
		return t, err
	}
	if on {
		if t.TLS, t.Shard, err = dialAs(files, addr); err != nil {
			return t, err
		}
	}
	if f.controlAddr != "" {
		t.Hooks.Faults = SubstrateControl(func() string { return f.controlAddr }, t.TLS)
	}
	t.Hooks.Kill, t.Hooks.Stop, t.Hooks.LoseStore = shell(f.kill), shell(f.stop), shell(f.lose)
	if t.Hooks.Stop == nil {
		t.Hooks.Stop = t.Hooks.Kill
	}
	if f.start != "" {
		t.Hooks.Start = func(ctx context.Context) (string, error) { return lastLine(ctx, f.start) }
	}
	if f.ready != "" {
		t.Hooks.Readiness = func(ctx context.Context, on bool) error {
			_, err := lastLine(ctx, f.ready+map[bool]string{true: " on", false: " off"}[on])
			return err
		}
	}
	if f.certs != "" {
		t.Hooks.Certs = func(sans ...string) (*tls.Config, error) { return certsBy(f.certs, addr, sans) }
	}
	_, err = t.withDefaults()
	return t, err
}

// dialAs makes a client configuration and names the shard that the certificate speaks for.
func dialAs(files identity.Files, addr string) (*tls.Config, string, error) {
	source, err := identity.Load(files, identity.Options{})
	if err != nil {
		return nil, "", err
	}
	host, _, _ := strings.Cut(addr, ":")
	config := source.ClientConfig(host, nil)
	id, err := source.ID()
	if err != nil {
		return config, "", nil // a certificate without an identity; the provider says what it thinks of that
	}
	return config, id.Name, nil
}

func shell(command string) func(context.Context) error {
	if command == "" {
		return nil
	}
	return func(ctx context.Context) error {
		_, err := lastLine(ctx, command)
		return err
	}
}

// lastLine runs a command of a hook and returns the last line it printed. What it starts in the background keeps no pipe.
func lastLine(ctx context.Context, command string) (string, error) {
	out, err := os.CreateTemp("", "bigfleet-conformance-hook-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	line := ""
	for s := bufio.NewScanner(out); s.Scan(); {
		if text := strings.TrimSpace(s.Text()); text != "" {
			line = text
		}
	}
	return line, nil
}

// certsBy asks the hook for files.
func certsBy(command, addr string, sans []string) (*tls.Config, error) {
	quoted := make([]string, len(sans))
	for i, s := range sans {
		if _, err := url.Parse(s); err != nil {
			return nil, err
		}
		quoted[i] = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	out, err := exec.Command("sh", "-c", command+" "+strings.Join(quoted, " ")).Output()
	if err != nil {
		return nil, fmt.Errorf("hook certs: %w", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 3 {
		return nil, fmt.Errorf("hook certs printed %d lines; it must print three: certificate file, key file, CA file", len(lines))
	}
	config, _, err := dialAs(identity.Files{Cert: lines[0], Key: lines[1], CA: lines[2]}, addr)
	return config, err
}

// plan lists the behaviours and the machines they need (PROV-29.6).
func plan(w io.Writer, t Target) error {
	t, err := t.withDefaults()
	if err != nil {
		return err
	}
	s := &suite{target: t}
	for _, b := range behaviours() {
		why := s.applies(b)
		if why == "" {
			why = "runs"
		}
		fmt.Fprintf(w, "%-32s %-36s %s\n", b.name, why, b.says)
	}
	_, err = fmt.Fprintln(w, "needed:", s.need().words(t))
	return err
}
