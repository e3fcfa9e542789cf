package cli

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/contexts"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// live are the words by which verbs call an argument that has a live name, and the kind of that name (OPS-4.11).
var live = map[string]string{
	"MACHINE": "machine", "[MACHINE...]": "machine", "CLUSTER": "cluster", "SHARD": "shard", "SHARD]": "shard", "PAUSE": "pause", "KEY=VALUE": "domain", "[KEY=VALUE": "domain", "MOVE": "move",
	"NODE": "peer", "PROVIDER": "registration", "INSTRUCTION": "instruction",
}

// liveFlags are the flags that take a live name, and its kind.
var liveFlags = map[string]string{
	"machine": "machine", "remove-machine": "machine", "cluster": "cluster", "drop-cluster": "cluster", "failed-in": "cluster", "shard": "shard", "default-owner": "shard",
	"provider": "provider", "zone": "zone", "drain-zone": "zone", "type": "type", "pool": "pool", "namespace": "namespace",
}

// choices are the flags with a closed set of values. Enums come as tables show them.
var choices = map[string][]string{
	"output": output.Formats(), "state": values("MACHINE_STATE_", pb.MachineState_name), "flag": values("MACHINE_FLAG_", pb.MachineFlag_name),
	"kind": {"bootstrap", "provision", "preempt", "reclaim", "delete"}, "fail-on": {"preempt", "reclaim", "delete", "provision", "bootstrap", "unmet"},
	"by": {"cluster", "priority", "provider", "type", "capacity", "zone", "penalty"}, "mode": {"on", "dry-run", "off"}, "unowned": {"default-owner", "auto-assign"},
	"max-tier": values("MOVE_TIER_", pb.MoveTier_name), "reason": values("UNMET_REASON_", pb.UnmetReason_name), // of `get needs`; a reason for a change is anybody's own words
}

// values are the short forms of an enum, without its zero.
func values(prefix string, names map[int32]string) (out []string) {
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if n != 0 {
			out = append(out, output.Enum(prefix, names[n]))
		}
	}
	return out
}

// takesNames lets every verb take names as -o name prints them: `bigfleet machines retry machine/m-0001`, `--cluster cluster/red`.
func takesNames(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := bareNames(c, args); err != nil {
				return err
			}
			return run(c, args)
		}
	}
	for _, child := range c.Commands() {
		takesNames(child)
	}
}

// bareNames takes the kind off the names of one call.
func bareNames(c *cobra.Command, args []string) (err error) {
	if words := strings.Fields(c.Use)[1:]; len(words) > 0 {
		for i := range args {
			args[i] = bareName(live[words[min(i, len(words)-1)]], args[i])
		}
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		kind := liveFlags[f.Name]
		if list, is := f.Value.(pflag.SliceValue); is && kind != "" {
			names := list.GetSlice()
			for i := range names {
				names[i] = bareName(kind, names[i])
			}
			err = errors.Join(err, list.Replace(names))
		} else if v := f.Value.String(); kind != "" && bareName(kind, v) != v {
			err = errors.Join(err, f.Value.Set(bareName(kind, v)))
		}
	})
	return err
}

// bareName is a name without the kind that -o name prints before it.
func bareName(kind, name string) string {
	if kind == "" {
		return name
	}
	return strings.TrimPrefix(name, printedKind(kind)+"/")
}

// printedKind is the kind that -o name prints before names of this kind.
func printedKind(kind string) string {
	if kind == "registration" {
		return "provider"
	}
	return kind
}

// completes gives every verb the completion that its line of use tells, where it has none of its own.
func completes(a *app.App, c *cobra.Command) {
	words := strings.Fields(c.Use)[1:]
	if c.RunE != nil && c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && !c.Hidden {
		c.ValidArgsFunction = arguments(a, words)
	}
	for flag, complete := range flagNames(a) {
		if f := c.LocalFlags().Lookup(flag); f != nil && f.Value.Type() != "bool" && !c.Hidden && !(flag == "reason" && c.Flags().Lookup("yes") != nil) {
			_ = c.RegisterFlagCompletionFunc(flag, complete) // fails only where a verb has its own
		}
	}
	for _, child := range c.Commands() {
		completes(a, child)
	}
}

// arguments completes each argument by its word, for example CLUSTER. A file is left to the shell.
func arguments(a *app.App, words []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(words) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch word := words[len(args)]; {
		case live[word] != "":
			return a.Complete(map[string]string{live[word]: ""})(c, nil, typed)
		case word == "CONTEXT":
			return contextNames(a), cobra.ShellCompDirectiveNoFileComp
		case word == "FILE" || word == "DIR" || word == "[DIR]":
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// flagNames complete the flags that mean the same with every verb.
func flagNames(a *app.App) map[string]cobra.CompletionFunc {
	out := map[string]cobra.CompletionFunc{
		"context": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return contextNames(a), cobra.ShellCompDirectiveNoFileComp
		},
	}
	for flag, kind := range liveFlags {
		out[flag] = func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.Complete(map[string]string{kind: ""})(c, nil, typed)
		}
	}
	for flag, all := range choices {
		out[flag] = listed(all)
	}
	return out
}

// listed offers values of a set, also behind those that were typed already: `idle,conf`.
func listed(all []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		for _, v := range all {
			if strings.HasPrefix(before+v, typed) {
				out = append(out, before+v)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func contextNames(a *app.App) (out []string) {
	path, err := contexts.Path(a.Getenv)
	if err != nil {
		return nil
	}
	f, err := contexts.Load(path)
	if err != nil {
		return nil
	}
	for name := range f.Contexts {
		out = append(out, name)
	}
	return out
}
