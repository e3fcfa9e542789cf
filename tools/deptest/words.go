package deptest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Word is one that the repository does not use, and the one that it uses instead: one thing has one word, and it is the field's.
type Word struct {
	Not, Use string
	Below    string // the folder it is forbidden in; empty: everywhere
	Except   string // folders in it where it stays, with a space between; empty: none
}

// Words are those that were given up for a word of the field. docs/style.md has those of sentences.
var Words = []Word{
	{"chore", "step of an allocation", "", ""},
	{"crew", "workers", "services/shard", ""},
	{"shunned", "excluded", "", ""},
	{"untell", "withdraw", "", ""},
	{"untold", "unexplained", "", ""},
	{"told", "notified, sent, received, reported", "", ""},
	{"nobody", "the noun: no Need, no cluster", "", "sdk/provider tools/protoc-gen-openapi"}, // names of users, a stored file and the generated document have it
	{"anew", "again", "", ""},
	{"whoever", "the noun: the caller, a reader", "", "services/shard/internal/engine"},
	{"everybody", "the noun: every caller, all Pods", "", "services/shard/internal/engine"},
	{"audience", "subscribers", "services/shard", ""},
	{"drainage", "drainPlan", "", ""},
	{"prey", "victim", "", ""},
	{"flyer", "inFlight", "", ""},
	{"flying", "inFlight", "", ""},
	{"flies", "is in flight", "", ""},
	{"giver", "donor", "", ""},
	{"taker", "recipient", "services/shard/internal/engine", ""},
	{"shelf", "supplyGroup, interner", "", ""},
	{"shelves", "supplyGroups", "", ""},
	{"pile", "candidateIndex", "services/shard/internal/engine", ""},
	{"rails", "guards", "", ""},
	{"rungs", "the condition of the fast path", "", ""},
	{"roster", "inventory, machines", "", ""},
	{"teller", "StatusReporter", "", ""},
	{"desk", "registry, server", "", ""},
	{"reign", "leadership", "", ""},
	{"pulse", "stallDetector, broadcast", "", ""},
	{"wish", "request, selection", "services", ""},
	{"spoiled", "stale, damaged", "", ""},
	{"lane", "concurrencyClass, queue", "", "services/operator/router"}, // a value of a metric's label has it
	{"lanes", "concurrencyClasses, queues", "", ""},
	{"loose", "unclaimed", "services/shard/internal/engine", ""},
	{"laid", "packed", "services/shard/internal/engine", ""},
	{"stamp", "attribution, version, timestamp", "services", ""},
	{"stamp", "attribution, version, timestamp", "sdk", "sdk/identity"},
	{"stamped", "attributed, written", "", ""},
	{"stamps", "attributes, writes", "", ""},
}

var (
	letters = regexp.MustCompile(`[A-Za-z]+`)
	parts   = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

// CheckWords lists where files, relative to dir, use a word of the list: in names, comments and texts, as "file:line: what". Decisions
// and specifications are left out, since they say what was, and test data and generated code are others' words.
func CheckWords(dir string, files []string, words []Word) ([]string, error) {
	var out []string
	for _, name := range files {
		if strings.HasPrefix(name, "gen/") || strings.HasPrefix(name, "docs/adr/") || strings.HasPrefix(name, "docs/spec/") ||
			strings.HasPrefix(name, "tools/deptest/words") || strings.Contains("/"+name, "/testdata/") ||
			!slices.Contains([]string{".go", ".md", ".proto"}, path.Ext(name)) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		out = append(out, wordsIn(name, string(text), words)...)
	}
	return out, nil
}

func wordsIn(file, text string, words []Word) (out []string) {
	not := map[string]Word{}
	for _, w := range words {
		stays := slices.ContainsFunc(strings.Fields(w.Except), func(at string) bool { return strings.HasPrefix(file, at) })
		if strings.HasPrefix(file, w.Below) && !stays {
			not[w.Not] = w
		}
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		for _, name := range letters.FindAllString(line, -1) {
			for _, part := range parts.FindAllString(name, -1) {
				if w, found := not[strings.ToLower(part)]; found {
					out = append(out, fmt.Sprintf("%s:%d: %q: write %s", file, n, name, w.Use))
				}
			}
		}
	}
	return out
}
