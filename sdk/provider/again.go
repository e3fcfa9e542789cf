package provider

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// faults answers for a command line whose flags could not be parsed: first is what parsing said, at the first wrong flag. It
// takes what it can and names all that is wrong with flags, environment and file together (OPS-2.3). It starts nothing.
func (l *loader[C]) faults(cmd *cobra.Command, args []string, first error) error {
	fs := cmd.Flags()
	var all []error
	for _, arg := range args {
		name, long := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if long && name != "" && fs.Lookup(name) == nil {
			all = append(all, fmt.Errorf("unknown flag: --%s", name))
		}
	}
	fs.ParseErrorsAllowlist.UnknownFlags = true
	err := fs.ParseAll(args, func(f *pflag.Flag, value string) error {
		if err := fs.Set(f.Name, value); err != nil {
			all = append(all, err)
		}
		return nil
	})
	if len(all) == 0 { // wrong in another way, such as a flag without its value
		return first
	}
	if err == nil {
		err = l.load(cmd)
	}
	if err == nil {
		err = l.wrong()
	}
	return errors.Join(append(all, err)...)
}
