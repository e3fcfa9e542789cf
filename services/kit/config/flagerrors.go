package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagErrors answers for a command line whose flags could not be parsed: refused is what parsing said, at the first wrong flag.
// FlagErrors takes what it can and returns everything that is wrong with flags, environment and file together (OPS-2.3). It
// starts nothing, for it asks the command for --print-config; of a command without that flag refused is the answer.
func FlagErrors(root *cobra.Command, args []string, refused error) error {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.RunE == nil || cmd.Flags().Lookup("print-config") == nil {
		return refused
	}
	faults := retake(cmd.Flags(), rest)
	if len(faults) == 0 {
		return refused // for another reason than its flags
	}
	if err := cmd.Flags().Set("print-config", "true"); err != nil {
		return refused
	}
	cmd.SetOut(io.Discard)
	return Fail(append(faults, cmd.RunE(cmd, nil))...)
}

// retake parses as pflag does, and continues behind what is wrong.
func retake(fs *pflag.FlagSet, args []string) (faults []error) {
	fs.VisitAll(func(f *pflag.Flag) { // what was taken the first time is not taken twice
		if list, ok := f.Value.(pflag.SliceValue); ok && f.Changed {
			_ = list.Replace(nil)
		}
	})
	for afterUnknown := false; len(args) > 0; {
		word := args[0]
		args = args[1:]
		if !strings.HasPrefix(word, "-") {
			if !afterUnknown { // else it is most likely the value of that flag
				faults = append(faults, fmt.Errorf("unexpected argument %q", word))
			}
			continue
		}
		name, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := fs.Lookup(name)
		if afterUnknown = f == nil || !strings.HasPrefix(word, "--"); afterUnknown {
			faults = append(faults, fmt.Errorf("unknown flag: %s%s", strings.TrimSuffix(word, "="+value), suggestion(fs, name)))
			continue
		}
		switch {
		case joined:
		case f.NoOptDefVal != "":
			value = f.NoOptDefVal
		case len(args) == 0:
			return append(faults, fmt.Errorf("--%s has no value", name))
		default:
			value, args = args[0], args[1:]
		}
		if err := set(f, value); err != nil {
			faults = append(faults, fmt.Errorf("--%s: %s", name, reasonFor(f, value, err)))
		}
	}
	return faults
}
