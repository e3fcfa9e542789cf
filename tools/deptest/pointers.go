package deptest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Pointers knows what the texts of a repository may point at.
type Pointers struct {
	dir      string
	files    []string
	exists   map[string]bool // files and folders, relative to dir
	suffixes map[string]bool // ends of files and folders
	bases    map[string]bool // last elements of files
	records  map[string]bool // numbers of docs/adr
	clauses  map[string]bool // ENG-13.10, COORD-21.7
	targets  map[string]bool // of the Makefile
	tests    map[string]bool // functions of tests
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence        = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	treePath     = regexp.MustCompile(`(^|[^\w/.@:$-])((?:services|sdk|docs|e2e|tools|deploy|proto|gen|\.ci)/[\w./*<>{}$-]+)`)
	quotedGoFile = regexp.MustCompile("`((?:\\w+/)*[\\w]+\\.(?:go|proto|sh))`")
	innerPath    = regexp.MustCompile(`(^|[^\w/.@:$-])((?:internal|kit)/[\w./*<>{}$-]+)`)
	recordRef    = regexp.MustCompile(`(?:ADR |\badr/)([0-9]{4})\b`)
	clauseRef    = regexp.MustCompile(`\b(WIRE|ENG|SHARD|PROV|COORD|OP|OPS)-([PS]?[0-9]+(?:\.[0-9]+)*)[a-z]?`)
	makeRef      = regexp.MustCompile("(?m)(?:`|^ *)make ([a-z][a-z-]+)(?:`|$|  | [A-Z#])")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	testRef      = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`")
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	heading      = regexp.MustCompile(`^#+ .*`)
	notInAnchor  = regexp.MustCompile(`[^\w -]`)

	specSection = regexp.MustCompile(`^##+ ([0-9]+(?:\.[0-9]+)*)\.? `)
	specClause  = regexp.MustCompile(`^(?:- |\| )(?:\*\*)?((?:WIRE|ENG|SHARD|PROV|COORD|OP|OPS)-[PS]?[0-9]+(?:\.[0-9]+)*)`)
	specItem    = regexp.MustCompile(`^( *)([0-9]+)\. `)
)

// areas are the prefixes of clauses by file of docs/spec.
var areas = map[string]string{
	"wire": "WIRE", "engine": "ENG", "shard": "SHARD", "provider": "PROV", "coordinator": "COORD", "operator": "OP", "operations": "OPS",
}

// built are paths below the top folders that exist only after a build.
var built = []string{"gen/ts/node_modules"}

// NewPointers reads what files, relative to dir, define: clauses, records and targets.
func NewPointers(dir string, files []string) (*Pointers, error) {
	p := &Pointers{
		dir: dir, files: files, exists: map[string]bool{}, suffixes: map[string]bool{}, bases: map[string]bool{},
		records: map[string]bool{}, clauses: map[string]bool{}, targets: map[string]bool{}, tests: map[string]bool{},
	}
	for _, name := range files {
		p.bases[path.Base(name)] = true
		for at := name; at != "."; at = path.Dir(at) {
			p.exists[at] = true
			for rest := at; rest != ""; _, rest, _ = strings.Cut(rest, "/") {
				p.suffixes[rest] = true
			}
		}
		folder, base := path.Split(name)
		switch {
		case folder == "docs/adr/" && len(base) > 4:
			p.records[base[:4]] = true
		case folder == "docs/spec/":
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			p.define(areas[strings.TrimSuffix(base, ".md")], string(text))
		case strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
				p.tests[m[1]] = true
			}
		case name == "Makefile":
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			for _, m := range makeTarget.FindAllStringSubmatch(string(text), -1) {
				p.targets[m[1]] = true
			}
		}
	}
	return p, nil
}

// define collects what a specification defines: clauses, sections, and the numbered items of both.
func (p *Pointers) define(area, text string) {
	section, clause := "", ""
	for line := range strings.Lines(text) {
		if m := specSection.FindStringSubmatch(line); m != nil {
			section, clause = area+"-"+m[1], ""
			p.clauses[section] = true
		}
		if m := specClause.FindStringSubmatch(line); m != nil {
			clause = m[1]
			p.clauses[clause] = true
		}
		if m := specItem.FindStringSubmatch(line); m != nil && m[1] == "" {
			p.clauses[section+"."+m[2]] = true
			p.clauses[area+"-S"+m[2]] = true // scenarios of the engine are cited as ENG-S1
		} else if m != nil && clause != "" {
			p.clauses[clause+"."+m[2]] = true
		}
	}
}

// Check lists the pointers in all texts that lead nowhere, as "file:line: what". Generated files and test data are not read.
func (p *Pointers) Check() ([]string, error) {
	var out []string
	for _, name := range p.files {
		if strings.HasPrefix(name, "gen/") || strings.Contains("/"+name, "/testdata/") || path.Ext(name) == ".jsonl" {
			continue
		}
		info, err := os.Lstat(filepath.Join(p.dir, filepath.FromSlash(name)))
		if err != nil || !info.Mode().IsRegular() || info.Size() > fileBytesMax {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		out = append(out, p.CheckText(name, string(text))...)
	}
	return out, nil
}

// CheckText is Check of one text, which is in file name.
func (p *Pointers) CheckText(name, text string) []string {
	var out []string
	report := func(at int, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: %s", name, 1+strings.Count(text[:at], "\n"), fmt.Sprintf(format, args...)))
	}
	each := func(pattern *regexp.Regexp, group int, check func(at int, found string)) {
		for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
			if path.Ext(name) != ".go" || inComment(text, m[2*group]) {
				check(m[2*group], text[m[2*group]:m[2*group+1]])
			}
		}
	}
	each(treePath, 2, func(at int, found string) {
		found = strings.TrimRight(found, "./")
		if !strings.ContainsAny(found, "*<>{}$") && !p.exists[found] && !p.isRecord(found) &&
			!slices.ContainsFunc(built, func(b string) bool { return strings.HasPrefix(found, b) }) && !p.reached(found) {
			report(at, "%s does not exist", found)
		}
	})
	each(innerPath, 2, func(at int, found string) {
		if found = strings.TrimRight(found, "./"); !strings.ContainsAny(found, "*<>{}$") && !p.suffixes[found] {
			report(at, "no path ends in %s", found)
		}
	})
	each(recordRef, 1, func(at int, found string) {
		if !p.records[found] {
			report(at, "docs/adr has no record %s", found)
		}
	})
	each(clauseRef, 0, func(at int, found string) {
		if !p.clauses[strings.TrimRight(found, "abcdefghijklmnopqrstuvwxyz")] {
			report(at, "docs/spec has no clause %s", found)
		}
	})
	each(testRef, 1, func(at int, found string) {
		if !p.tests[found] {
			report(at, "no test is named %s", found)
		}
	})
	if path.Ext(name) == ".md" {
		p.checkMarkdown(name, text, each, report)
	}
	return out
}

func (p *Pointers) checkMarkdown(name, text string, each func(*regexp.Regexp, int, func(int, string)), report func(int, string, ...any)) {
	code := fence.FindAllStringIndex(text, -1)
	each(markdownLink, 1, func(at int, link string) {
		inCode := slices.ContainsFunc(code, func(c []int) bool { return c[0] <= at && at < c[1] })
		if inCode || strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			return
		}
		file, anchor, hasAnchor := strings.Cut(link, "#")
		target := path.Join(path.Dir(name), file)
		if file == "" {
			target = name
		}
		switch {
		case !p.exists[target] && target != "." && !p.reached(target):
			report(at, "the link %s leads nowhere", link)
		case hasAnchor && path.Ext(target) == ".md" && !p.hasHeading(target, anchor):
			report(at, "%s has no heading #%s", target, anchor)
		}
	})
	each(quotedGoFile, 1, func(at int, file string) {
		if !p.bases[path.Base(file)] && !treePath.MatchString(file) {
			report(at, "no file is named %s", file)
		}
	})
	each(makeRef, 1, func(at int, target string) {
		if !p.targets[target] {
			report(at, "the Makefile has no target %s", target)
		}
	})
}

// isRecord tells whether found names a record by its number: docs/adr/0165.
func (p *Pointers) isRecord(found string) bool {
	number, ok := strings.CutPrefix(found, "docs/adr/")
	return ok && p.records[number]
}

// reached tells whether name exists behind a symbolic link that git tracks.
func (p *Pointers) reached(name string) bool {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if info, err := os.Lstat(filepath.Join(p.dir, at)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			_, err := os.Stat(filepath.Join(p.dir, name))
			return err == nil
		}
	}
	return false
}

// hasHeading tells whether a heading of the markdown file has the anchor, as GitHub makes them.
func (p *Pointers) hasHeading(file, anchor string) bool {
	text, err := os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(file)))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if h := heading.FindString(strings.TrimSpace(line)); h != "" {
			h = notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(strings.TrimLeft(h, "#"))), "")
			if strings.ReplaceAll(h, " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// inComment tells whether the byte at i of a Go text is behind "//" on its line.
func inComment(text string, i int) bool {
	start := strings.LastIndexByte(text[:i], '\n') + 1
	return strings.Contains(text[start:i], "//")
}
