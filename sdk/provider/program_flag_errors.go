package provider

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagErrors reports everything that is wrong with a command line whose flags could not be parsed, together with the
// environment and the file (OPS-2.3). first is the error of the parser, about the first wrong flag. It starts nothing.
func (l *loader[C]) flagErrors(cmd *cobra.Command, args []string, first error) error {
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
