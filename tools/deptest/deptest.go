// Package deptest checks what no compiler checks: the directions of dependencies, and that the tree stays clean and its texts true.
//
// Dependencies: Load asks the go command for the packages of a workspace and what they import. A Rule says what some of them may
// never import or reach, and why. Graph.Check returns every violation with the shortest chain of imports and the reason. A rule
// about packages that do not exist yet holds for nothing and applies as soon as they do. The rules are in rules.go.
//
// The tree: CheckFiles finds programs, large files and records of failures among the files that git tracks (tree.go).
//
// Texts: Pointers.Check finds paths, links, clauses, decision records and make targets that are named and do not exist
// (pointers.go). A test compares the index of docs/adr with the records.
//
// The tests run all of it over this repository, and over planted violations. The package uses the standard library alone and is
// imported by nothing.
package deptest

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is one ban. Patterns are import paths; "a/..." stands for a and all below it. Paths that start with "./" are relative to
// the repository's module prefix.
type Rule struct {
	From   []string // the packages it is about
	Except []string // packages of From that it is not about

	Never       []string // may not be reached by any chain of imports, nor be named in From's go.mod
	NeverDirect []string // may not be imported by From, nor by packages of the workspace that From imports; for standard packages, which fmt and others bring in anyway
	Allow       []string // what Never names and may be reached all the same, with what it brings along
	Only        []string // if not empty: besides the standard library and From, nothing else may be imported

	Tests    bool   // the tests of From, and what they reach, are meant too
	MainOnly bool   // only programs (package main) of From are meant
	Why      string // printed with every violation
}

// Violation is one broken rule at one package.
type Violation struct {
	Package string
	Chain   []string // from Package to what is banned
	Why     string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s", strings.Join(v.Chain, " -> "), v.Why)
}

// Check returns the violations in the order of rules and packages.
func (g *Graph) Check(rules []Rule) []Violation {
	var out []Violation
	for _, r := range rules {
		for _, p := range g.packages {
			if !p.local || !g.any(r.From, p.path) || g.any(r.Except, p.path) || r.MainOnly && p.name != "main" {
				continue
			}
			out = append(out, g.checkPackage(r, p)...)
		}
		out = append(out, g.checkModules(r)...)
	}
	return out
}

func (g *Graph) checkPackage(r Rule, p *pkg) []Violation {
	var out []Violation
	report := func(chain []string) { out = append(out, Violation{Package: p.path, Chain: chain, Why: r.Why}) }
	imports := p.imports
	if r.Tests {
		imports = slices.Concat(p.imports, p.testImports)
	}
	for _, path := range imports {
		if len(r.Only) > 0 && !g.standard(path) && !g.any(r.Only, path) && !g.any(r.From, path) {
			report([]string{p.path, path})
		}
	}
	everything := func(*pkg) bool { return true }
	if chain := g.chain(p, imports, r.Never, r.Allow, everything); chain != nil {
		report(chain)
	}
	if chain := g.chain(p, imports, r.NeverDirect, r.Allow, func(next *pkg) bool { return next.local }); chain != nil {
		report(chain)
	}
	return out
}

// chain finds the shortest chain of imports from p to a package that matches never, through packages that pass.
func (g *Graph) chain(p *pkg, imports, never, allow []string, through func(*pkg) bool) []string {
	if len(never) == 0 {
		return nil
	}
	from := map[string]string{}
	queue := []string{}
	visit := func(path, by string) {
		if _, seen := from[path]; !seen && path != p.path && !g.any(allow, path) {
			from[path] = by
			queue = append(queue, path)
		}
	}
	for _, path := range imports {
		visit(path, p.path)
	}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if g.any(never, path) {
			chain := []string{path}
			for path != p.path {
				path = from[path]
				chain = append(chain, path)
			}
			slices.Reverse(chain)
			return chain
		}
		if next := g.byPath[path]; next != nil && through(next) {
			for _, i := range next.imports {
				visit(i, path)
			}
		}
	}
	return nil
}

// checkModules looks at the go.mod files of From: what is required there reaches every module that requires it.
func (g *Graph) checkModules(r Rule) []Violation {
	var out []Violation
	for _, m := range g.modules {
		if r.MainOnly || !g.any(r.From, m.path) || g.any(r.Except, m.path) {
			continue
		}
		for _, required := range m.requires {
			if g.any(r.Never, required) {
				out = append(out, Violation{Package: m.path, Chain: []string{m.path + "/go.mod", required}, Why: r.Why})
			}
		}
	}
	return out
}

// any tells whether path matches one of the patterns.
func (g *Graph) any(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if rest, ok := strings.CutPrefix(pattern, "./"); ok {
			pattern = g.prefix + "/" + rest
		}
		if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
			return path == tree || strings.HasPrefix(path, tree+"/")
		}
		return path == pattern
	})
}
