package script_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// otherPages are pages with commands that are not of `bigfleet`: which test runs them, or why none can. The lines of `bigfleet` on these pages
// are run by everyCommandRuns.
var otherPages = map[string]struct{ test, why string }{
	"docs/clusters.md":                                          {"e2e/operator/guide_test.go", ""},
	"docs/coordinator.md":                                       {"services/coordinator/guide_test.go", ""},
	"services/providers/sim/README.md":                          {"services/providers/sim/readme_test.go", ""},
	"docs/releases.md":                                          {"e2e/published/published_test.go", ""},
	"docs/console.md":                                           {"", "a port-forward to the console that the chart installs: it needs a cluster that runs its image"},
	"docs/runbook-provider.md":                                  {"", "asks a provider that stands still; `bigfleet provider ping` makes the same request, and its test runs it"},
	"docs/engine.md":                                            {"", "a search of new seeds by hand: CI runs the laws with fixed ones"},
	"docs/simulator.md":                                         {"", "seeds by hand: CI runs them with a fixed number"},
	"docs/benchmarks.md":                                        {"", "half an hour on a quiet machine: CI runs a tenth of it"},
	"services/providers/aws/README.md":                          {"", "needs an account at AWS"},
	"services/console/README.md":                                {"", "builds the console with npm: CI does"},
	"deploy/monitoring/README.md":                               {"", "needs a Prometheus and a Grafana in the cluster; promtool checks the rules"},
	"CONTRIBUTING.md":                                           {"", "make targets of CI itself"},
	"README.md":                                                 {"", "make targets of CI itself"},
	"services/shard/README.md":                                  {"", "the reads of `bigfleet status` and `get machines`, which run here, by hand"},
	"deploy/charts/bigfleet/README.md":                          {"", published},
	"deploy/charts/bigfleet-crds/README.md":                     {"", published},
	"deploy/charts/bigfleet-operator/README.md":                 {"", published},
	"deploy/charts/bigfleet-pod-controller/README.md":           {"", published},
	"deploy/charts/bigfleet-provider/README.md":                 {"", published},
	"deploy/charts/bigfleet-provider-aws/README.md":             {"", published},
	"deploy/charts/bigfleet-provider-clusterapi/README.md":      {"", published},
	"deploy/charts/bigfleet-provider-hosts/README.md":           {"", published},
	"deploy/charts/bigfleet-provider-kwok/README.md":            {"", published},
	"deploy/charts/bigfleet-provider-sim/README.md":             {"", published},
	"deploy/charts/bigfleet/templates/NOTES.txt":                {"", "`helm install` of the operator and a port-forward: e2e/charts renders the notes, docs/clusters.md installs the same"},
	"deploy/charts/bigfleet-crds/templates/NOTES.txt":           {"docs/clusters.md", ""},
	"deploy/charts/bigfleet-operator/templates/NOTES.txt":       {"docs/clusters.md", ""},
	"deploy/charts/bigfleet-pod-controller/templates/NOTES.txt": {"docs/clusters.md", ""},
}

const published = "installs a release from its registry: e2e/charts applies the charts of this tree with the values that matter"

// A line of a block is a command if it begins with one of these.
var isCommand = regexp.MustCompile(`^(?:\$ )?(make|cd|go|kubectl|helm|curl|docker|npm|npx|git|brew|cosign|bigfleet-[a-z-]+)\b`)

// commandsOf are the commands in the blocks of a page that are not of `bigfleet`.
func commandsOf(text, indent string) (out []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, indent) && !strings.HasPrefix(line, indent+" ") {
			if line = strings.TrimSpace(line); isCommand.MatchString(line) && !strings.Contains(line, "go run ./services/bigfleet ") {
				out = append(out, strings.TrimPrefix(line, "$ "))
			}
		}
	}
	return out
}

// OPS-14.2: every command in a block of a page or of a chart's notes is run by a test, or the list says why it is not. Targets of make and
// directories exist on every page.
func TestEveryBlockIsRun(t *testing.T) {
	makefile := readRoot(t, "Makefile")
	unused := map[string]bool{}
	for page := range otherPages {
		unused[page] = true
	}
	for _, glob := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "services/*/README.md", "services/providers/*/README.md", "sdk/*/README.md",
		"deploy/*/README.md", "deploy/charts/*/README.md", "deploy/charts/*/templates/NOTES.txt"} {
		pages, err := filepath.Glob(root + glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range pages {
			page := strings.TrimPrefix(file, root)
			indent := "    "
			if filepath.Ext(page) == ".txt" {
				indent = "  "
			}
			commands := commandsOf(readRoot(t, page), indent)
			if wholePages[page] != "" || page == "docs/command.md" || page == "docs/questions.md" || len(commands) == 0 {
				continue
			}
			delete(unused, page)
			said, listed := otherPages[page]
			if !listed {
				t.Errorf("%s has commands that no test runs: put them into one, or say in otherPages why not:\n%s", page, strings.Join(commands, "\n"))
				continue
			}
			for _, c := range commands {
				exists(t, page, c, makefile)
			}
			switch run := said.test; {
			case run == "":
			case filepath.Ext(run) == ".md": // a page that has the same commands, for other names
				for _, c := range commands {
					if strings.Contains(c, "rollout status") { // it waits for Pods, and the cluster of that test runs none
						continue
					}
					if said := plain(c); !slices.ContainsFunc(commandsOf(readRoot(t, run), "    "), func(other string) bool { return plain(other) == said }) {
						t.Errorf("%s: `%s` is not on %s, whose commands are run", page, c, run)
					}
				}
			case !strings.Contains(readRoot(t, run), filepath.Base(page)) && !strings.Contains(run, filepath.Dir(page)):
				t.Errorf("%s does not name %s", run, page)
			}
		}
	}
	for page := range unused {
		t.Errorf("%s has no commands any more: take it from otherPages", page)
	}
}

// plain is a command without what a chart's notes fill in: the first words, and what they are about.
func plain(command string) string {
	command = regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(command, "NAME")
	command = regexp.MustCompile(` (-n|--namespace) \S+| --all-namespaces| --field-selector \S+`).ReplaceAllString(command, "")
	return command
}

func exists(t *testing.T, page, command, makefile string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\bmake ([a-z][a-z-]*)`).FindAllStringSubmatch(command, -1) {
		if !regexp.MustCompile(`(?m)^(?:[a-z -]* )?` + m[1] + `(?: [a-z -]*)?:`).MatchString(makefile) {
			t.Errorf("%s: there is no `make %s`", page, m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?:\bcd |go run \./|go test \./)(services[A-Za-z0-9_/.-]*|e2e[A-Za-z0-9_/.-]*|tools[A-Za-z0-9_/.-]*|sdk[A-Za-z0-9_/.-]*)`).FindAllStringSubmatch(command, -1) {
		if _, err := os.Stat(root + strings.TrimSuffix(m[1], "/...")); err != nil {
			t.Errorf("%s: `%s`: %v", page, command, err)
		}
	}
}

func readRoot(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
