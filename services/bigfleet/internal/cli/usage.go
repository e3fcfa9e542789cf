package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// helpOrNearest makes `help` refuse what is not a command, as the command line itself does.
func helpOrNearest(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return unknown(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
}

// shells makes `completion` refuse a shell that it does not know. The root's output is set before: the verbs keep it.
func shells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		var known []string
		for _, shell := range c.Commands() {
			known = append(known, shell.Name())
		}
		return exit.Usagef("there is no completion for %s: use one of %s", args[0], strings.Join(known, ", "))
	}
}

var (
	countOf = regexp.MustCompile(`^(?:accepts|requires) .*received (\d+)$`)
	groupOf = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	eitherF = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
)

// wrongUsage words what cobra refuses: what is missing or too much, and a line that would do (OPS-4.9).
func wrongUsage(verb *cobra.Command, err error) *exit.Error {
	text, path := err.Error(), strings.TrimPrefix(verb.CommandPath(), verb.Root().CommandPath()+" ")
	out := &exit.Error{Code: exit.Usage, Message: text, Hint: "Usage: " + verb.UseLine(), Err: err}
	if example, _, _ := strings.Cut(strings.TrimSpace(verb.Example), "\n"); example != "" {
		out.Hint = "For example: " + example
	}
	switch {
	case strings.HasPrefix(text, "required flag(s)"):
		out.Message = path + " needs " + strings.Join(missing(verb), ", ")
	case groupOf.MatchString(text):
		out.Message = path + " needs one of " + dashed(groupOf.FindStringSubmatch(text)[1])
	case eitherF.MatchString(text):
		out.Message = path + " takes only one of " + dashed(eitherF.FindStringSubmatch(text)[1])
	case strings.HasPrefix(text, "unknown command"):
		out.Message = path + " takes no argument"
	case countOf.MatchString(text):
		_, takes, _ := strings.Cut(strings.TrimSuffix(verb.Use, " [flags]"), " ")
		if given := countOf.FindStringSubmatch(text)[1]; given == "0" {
			out.Message = path + " needs " + takes
		} else if takes == "" {
			out.Message = path + " takes no argument"
		} else {
			out.Message = fmt.Sprintf("%s takes %s; %s arguments were given", path, takes, given)
		}
	}
	return out
}

// missing are the flags that a verb cannot do without and that were not given, with what they are.
func missing(verb *cobra.Command) (out []string) {
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 && !f.Changed {
			_, about := pflag.UnquoteUsage(f)
			out = append(out, "--"+f.Name+" ("+about+")")
		}
	})
	return out
}

func dashed(names string) string { return "--" + strings.Join(strings.Fields(names), ", --") }
