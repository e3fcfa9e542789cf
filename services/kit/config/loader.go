package config

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Loader fills the flags of one command.
type Loader struct {
	Role    string         // names the environment: operator gives BIGFLEET_OPERATOR_...
	Command *cobra.Command // its local flags are the settings
	Shared  *Shared        // bound to Command; required
	// Check reports what is wrong with the role's own settings, errors.Join of all of it. It runs after everything was
	// filled, even when a value was wrong, so that all problems appear at once.
	Check func() error
	// LookupEnv replaces os.LookupEnv in tests.
	LookupEnv func(string) (string, bool)
}

// Load fills every flag that the command line did not set from the environment, then from the file. With
// --print-config it prints the result to the command's stdout and returns printed = true: the caller returns then.
// Every error is an *Error.
func (l Loader) Load() (printed bool, err error) {
	if l.LookupEnv == nil {
		l.LookupEnv = os.LookupEnv
	}
	fs := l.Command.LocalFlags()
	sources := map[string]string{}
	var errs []error
	settings(fs, func(f *pflag.Flag) {
		errs = append(errs, checkName(f.Name))
		if f.Changed {
			sources[f.Name] = "flag"
		}
	})
	errs = append(errs, l.fromEnv(fs, sources)...)
	known := true
	if l.Shared.ConfigFile != "" {
		root, err := readFile(l.Shared.ConfigFile)
		if known = err == nil; known {
			errs = append(errs, fromFile(fs, l.Shared.ConfigFile, root, sources)...)
		} else {
			errs = append(errs, fmt.Errorf("--config: %w", err))
		}
	}
	settings(fs, func(f *pflag.Flag) { errs = append(errs, meant(f)) })
	errs = append(errs, l.Shared.Check())
	// Without the file it is unknown which settings are missing: only its absence is worth saying.
	if l.Check != nil && known {
		errs = append(errs, l.Check())
	}
	if err := Fail(errs...); err != nil {
		return false, err
	}
	if l.Shared.PrintConfig {
		return true, printTo(l.Command.OutOrStdout(), fs, sources)
	}
	return false, nil
}

// NoArgs is the Args of a command that takes flags only.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Fail(fmt.Errorf("unexpected argument %q: %s takes flags only, see --help", args[0], cmd.CommandPath()))
}

// settings visits the flags that are settings, by name. help and the flags that steer Load itself are none.
func settings(fs *pflag.FlagSet, visit func(*pflag.Flag)) {
	fs.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "help", "print-config":
		default:
			visit(f)
		}
	})
}

// EnvName is the environment variable of a setting.
func EnvName(role, flag string) string {
	clean := strings.NewReplacer("-", "_", ".", "_", " ", "_")
	return "BIGFLEET_" + strings.ToUpper(clean.Replace(role)+"_"+clean.Replace(flag))
}

// checkName refuses flags whose environment variable Kubernetes may set by itself: beside a Service named
// bigfleet-shard every Pod finds BIGFLEET_SHARD_PORT and BIGFLEET_SHARD_SERVICE_HOST. For the same reason unknown
// variables with our prefix cannot be errors.
func checkName(flag string) error {
	if flag == "port" || strings.HasPrefix(flag, "port-") || strings.HasPrefix(flag, "service-host") || strings.HasPrefix(flag, "service-port") {
		return fmt.Errorf("--%s: its environment variable collides with Kubernetes service links", flag)
	}
	return nil
}

func (l Loader) fromEnv(fs *pflag.FlagSet, sources map[string]string) []error {
	var errs []error
	settings(fs, func(f *pflag.Flag) {
		name := EnvName(l.Role, f.Name)
		text, ok := l.LookupEnv(name)
		if !ok || sources[f.Name] != "" {
			return
		}
		if err := set(f, text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", name, reasonFor(f, text, err)))
			return
		}
		sources[f.Name] = "env " + name
	})
	return errs
}

// set gives a flag one text, as the command line would: Changed tells "set to the default" from "not set", whatever
// the source was. A wrong text leaves the default, not the zero that pflag writes: nothing else is wrong because of it.
func set(f *pflag.Flag, text string) error {
	if err := f.Value.Set(text); err != nil {
		if !takesMany(f) {
			_ = f.Value.Set(f.DefValue)
		}
		return err
	}
	f.Changed = true
	return nil
}

// reasonFor never repeats a secret.
func reasonFor(f *pflag.Flag, text string, err error) string {
	if isSecret(f) {
		return fmt.Sprintf("not a valid %s", f.Value.Type())
	}
	return fmt.Sprintf("%q is not a valid %s: %v", text, f.Value.Type(), err)
}

const secretAnnotation = "bigfleet-secret"

// MarkSecret keeps the value of a flag out of --print-config and of error texts.
func MarkSecret(fs *pflag.FlagSet, flag string) {
	if f := fs.Lookup(flag); f != nil {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[secretAnnotation] = []string{"true"}
	}
}

func isSecret(f *pflag.Flag) bool { return f.Annotations[secretAnnotation] != nil }

// nearest returns the setting whose name is closest to key, or "".
func nearest(fs *pflag.FlagSet, key string) string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	settings(fs, func(f *pflag.Flag) { all = append(all, candidate{f.Name, distance(key, f.Name)}) })
	sort.SliceStable(all, func(i, j int) bool { return all[i].distance < all[j].distance })
	if len(all) == 0 || all[0].distance > max(1, len(key)/3) {
		return ""
	}
	return all[0].name
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
