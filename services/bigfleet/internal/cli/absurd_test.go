package cli_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	shardrole "github.com/bigfleet-dev/bigfleet/services/shard"
)

// absurd are values that no setting of a kind can mean, unless its help says what they mean.
var absurd = map[string][]string{
	"int": {"-1", "0", "9223372036854775807"}, "int32": {"-1", "0", "2147483647"}, "int64": {"-1", "0", "9223372036854775807"}, "uint32": {"0", "4294967295"},
	"uint64": {"0", "18446744073709551615"}, "float64": {"-1", "0", "1e300", "NaN"}, "duration": {"-1s", "0s", "1ns", "2000000h"},
}

// OPS-2.3: no number is rounded, defaulted or clamped silently. Every flag of every role is given absurd values: each is refused with the
// flag's name, or is in force exactly as it was given, and then the help says what it means.
func TestAbsurdNumbersAreRefusedOrMeant(t *testing.T) {
	for role, r := range map[string]struct {
		command func() *cobra.Command
		base    []string
	}{
		"shard":         {shardrole.NewCommand, []string{"--provider-addr", "a:1"}},
		"coordinator":   {func() *cobra.Command { return coordinator.NewCommand() }, []string{"--id", "node-0"}},
		"operator":      {operator.NewCommand, []string{"--cluster-id", "red", "--shard-addr", "a:1"}},
		"podcontroller": {podcontroller.NewCommand, nil},
		"provider-sim":  {sim.NewCommand, nil},
		"provider-kwok": {kwok.NewCommand, nil},
	} {
		t.Run(role, func(t *testing.T) {
			print := func(args ...string) (string, error) {
				c := r.command()
				var out bytes.Buffer
				c.SetOut(&out)
				c.SetErr(&out)
				c.SilenceUsage = true
				c.SetArgs(slices.Concat(r.base, []string{"--data-dir=" + t.TempDir()}, args, []string{"--print-config"}))
				if c.Flags().Lookup("data-dir") == nil {
					c.SetArgs(slices.Concat(r.base, args, []string{"--print-config"}))
				}
				err := c.ExecuteContext(t.Context())
				return out.String(), err
			}
			if out, err := print(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			walked := 0
			r.command().Flags().VisitAll(func(f *pflag.Flag) {
				for _, value := range absurd[f.Value.Type()] {
					walked++
					out, err := print("--" + f.Name + "=" + value)
					if err != nil {
						if said := strings.ReplaceAll(err.Error(), "_", "-"); !strings.Contains(said, f.Name) {
							t.Errorf("--%s=%s is refused without its name: %.300v", f.Name, value, err)
						}
						continue
					}
					if why := notMeant(f, value, out); why != "" {
						t.Errorf("--%s=%s is accepted, and %s; help: %s", f.Name, value, why, f.Usage)
					}
				}
			})
			if walked < 3 {
				t.Errorf("%d values tried", walked)
			}
		})
	}
}

// notMeant says why an accepted value is not one that somebody may mean, "" when it is one.
func notMeant(f *pflag.Flag, value, printed string) string {
	same := f.Value
	if err := same.Set(value); err != nil {
		return fmt.Sprint("cannot be read: ", err)
	}
	if !strings.Contains(printed, same.String()) {
		return "is not in force as it was given"
	}
	switch strings.TrimSuffix(value, "s") {
	case "0":
		if !strings.Contains(f.Usage, "0") && f.DefValue != "0" && f.DefValue != "0s" {
			return "the help does not say what 0 means"
		}
	case "-1":
		if !strings.Contains(f.Usage, "-1") && !strings.Contains(f.Usage, "negative") {
			return "the help does not say what a negative value means"
		}
	case "1n":
		if strings.Contains(f.Name, "-delay") && f.DefValue == "0s" {
			return "" // a delay of a pretended cloud, as good as none
		}
		return "nobody can mean it"
	case "NaN", "1e300", "2000000h":
		return "nobody can mean it"
	}
	return ""
}
