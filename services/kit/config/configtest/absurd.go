// Package configtest tests what the flags of a program make of absurd values. Tests import it, programs never do.
package configtest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// absurd are values that no setting of a kind can mean, unless its help says what they mean.
var absurd = map[string][]string{
	"int": {"-1", "0", "9223372036854775807"}, "int32": {"-1", "0", "2147483647"}, "int64": {"-1", "0", "9223372036854775807"}, "uint32": {"0", "4294967295"},
	"uint64": {"0", "18446744073709551615"}, "float64": {"-1", "0", "1e300", "NaN"}, "duration": {"-1s", "0s", "1ns", "2000000h"},
}

// RefusesAbsurd gives every flag of a program absurd values: each is refused with the flag's name, or is in force exactly as it was given, and
// then the help says what it means (OPS-2.3). base are flags that the program needs.
func RefusesAbsurd(t *testing.T, command func() *cobra.Command, base ...string) {
	t.Helper()
	print := func(args ...string) (string, error) {
		c := command()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SilenceUsage = true
		all := slices.Concat(base, args, []string{"--print-config"})
		if c.Flags().Lookup("data-dir") != nil {
			all = append(all, "--data-dir="+t.TempDir())
		}
		c.SetArgs(all)
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := print(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	walked := 0
	command().Flags().VisitAll(func(f *pflag.Flag) {
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
}

// zero is 0 as a number of its own in a sentence.
var zero = regexp.MustCompile(`(^|[^0-9.])0(s|ms)?($|[^0-9.]|[.]($| ))`)

// inForce reports whether the printed settings give a flag this value, in a line of its own. A setting of a section may have lost the word that
// the section has: configure-delay is configure of delays.
func inForce(printed, flag, value string) bool {
	key := flag[strings.LastIndex(flag, ".")+1:]
	keys := regexp.QuoteMeta(key)
	if at := strings.LastIndex(key, "-"); at > 0 && strings.Contains(printed, key[at+1:]+"s:") {
		keys += "|" + regexp.QuoteMeta(key[:at])
	}
	keys = strings.NewReplacer("-", "[-_]", "_", "[-_]").Replace(keys)
	return regexp.MustCompile(`(?m)^ *(` + keys + `): *"?` + regexp.QuoteMeta(value) + `"?( +#.*)?$`).MatchString(printed)
}

// notMeant says why an accepted value is not one that somebody may mean, "" when it is one.
func notMeant(f *pflag.Flag, value, printed string) string {
	same := f.Value
	if err := same.Set(value); err != nil {
		return fmt.Sprint("cannot be read: ", err)
	}
	if !inForce(printed, f.Name, same.String()) {
		return "is not in force as it was given"
	}
	switch strings.TrimSuffix(value, "s") {
	case "0":
		if !zero.MatchString(f.Usage) && f.DefValue != "0" && f.DefValue != "0s" {
			return "the help does not say what 0 means"
		}
	case "-1":
		if !strings.Contains(f.Usage, "-1") && !strings.Contains(f.Usage, "negative") {
			return "the help does not say what a negative value means"
		}
	case "1n":
		if strings.Contains(f.Name, "-delay") && f.DefValue == "0s" {
			return "" // a delay of a simulated cloud, as good as none
		}
		return "no operator can mean it"
	case "NaN", "1e300", "2000000h":
		return "no operator can mean it"
	}
	return ""
}
