// Package reference writes the command's own reference page, docs/command.md, from the command itself (OPS-4.12, OPS-14.2).
//
// The page is generated and compared by a test; `go generate ./internal/reference` writes it again. Start at Page.
package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

//go:generate go run ./write ../../../../docs/command.md

// Page writes the reference of a command and everything under it.
func Page(w io.Writer, root *cobra.Command) error {
	p := printer{w: w}
	p.line("<!-- Generated from the command by `go generate ./internal/reference` in services/bigfleet; a test compares it. -->\n")
	p.line("# Reference of the `bigfleet` command\n")
	p.line("New here? [The tutorial](command-tutorial.md) takes ten minutes. Every read takes `-o table|wide|json|yaml|jsonl|name|csv`, most take")
	p.line("`--watch`. Data goes to stdout, everything else to stderr. [answers.schema.json](answers.schema.json) is the JSON Schema of what each verb")
	p.line("prints with `-o json`.\n")
	p.line("## Exit codes\n\n| Code | Meaning |\n|---|---|")
	for _, c := range exit.Codes() {
		p.line("| %d | %s |", c.Code, c.Meaning)
	}
	p.line("\n## Flags of every verb\n\n```")
	p.line("%s```", flags(root.PersistentFlags()))
	p.line("\n## Verbs\n\n| Verb | Does |\n|---|---|")
	p.index(root, "")
	for _, c := range root.Commands() {
		p.command(c, "bigfleet", 2)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// skip leaves out what cobra adds by itself, and the roles, which have pages of their own.
func skip(c *cobra.Command) bool { return c.Hidden || c.Name() == "help" || c.Name() == "completion" }

func (p *printer) index(c *cobra.Command, path string) {
	for _, child := range c.Commands() {
		if skip(child) {
			continue
		}
		name := strings.TrimSpace(path + " " + child.Name())
		if child.HasSubCommands() {
			p.index(child, name)
			continue
		}
		p.line("| [`%s`](#%s) | %s |", name, anchor("bigfleet "+name), child.Short)
	}
}

func anchor(title string) string { return strings.ReplaceAll(strings.ToLower(title), " ", "-") }

func (p *printer) command(c *cobra.Command, path string, depth int) {
	if skip(c) {
		return
	}
	path += " " + c.Name()
	if c.HasSubCommands() {
		for _, child := range c.Commands() {
			p.command(child, path, depth)
		}
		return
	}
	p.line("\n%s %s\n", strings.Repeat("#", depth), path)
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	if strings.Contains(about, "\n  ") { // a list that is aligned for terminals
		p.line("```\n%s\n```", strings.TrimRight(about, "\n"))
	} else {
		p.line("%s", strings.TrimRight(about, "\n"))
	}
	_, arguments, _ := strings.Cut(c.Use, " ")
	p.line("\n```\n%s", strings.TrimSpace(path+" "+arguments+" [flags]"))
	if f := flags(c.LocalNonPersistentFlags()); f != "" {
		p.line("\n%s```", f)
	} else {
		p.line("```")
	}
	if c.Example != "" {
		p.line("\n```sh\n%s\n```", dedent(c.Example))
	}
}

func flags(f *pflag.FlagSet) string {
	f.SortFlags = true
	return f.FlagUsages()
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
