package script_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// wholePages are the pages of which a test of their own runs every block, in order.
var wholePages = map[string]string{
	"docs/command-tutorial.md":          "services/bigfleet/internal/script/tutorial_test.go",
	"docs/upgrade.md":                   "services/bigfleet/internal/script/tutorial_test.go",
	"docs/providers.md":                 "services/bigfleet/internal/command/provider/guide_test.go",
	"docs/provider-guide-typescript.md": "e2e/published/clients_test.go",
	"docs/clients.md":                   "e2e/published/clients_test.go",
	"docs/production.md":                "e2e/published/production_test.go",
}

// A page counts as run by another test only while that test names it.
func TestWholePagesAreRunElsewhere(t *testing.T) {
	for page, test := range wholePages {
		raw, err := os.ReadFile(root + test)
		if err != nil || !strings.Contains(string(raw), filepath.Base(page)) {
			t.Errorf("%s does not run the blocks of %s: %v", test, page, err)
		}
	}
}

// written collects the command lines of the pages and rules that people read, those in backticks and those in blocks, each with the first file
// that has it.
func written(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	quoted := regexp.MustCompile("`bigfleet ([a-z][^`]*)`")
	block := regexp.MustCompile(`(?m)^[ \t]*(?:\$ )?(?:go run \./services/)?bigfleet ([a-z][^#\n]*)`)
	read := func(path string) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := quoted.FindAllStringSubmatch(string(raw), -1)
		if ext := filepath.Ext(path); wholePages[strings.TrimPrefix(path, root)] == "" && (ext == ".md" || ext == ".txt") {
			found = append(found, block.FindAllStringSubmatch(string(raw), -1)...)
		}
		for _, m := range found {
			if line := strings.Join(strings.Fields(m[1]), " "); out[line] == "" {
				out[line] = strings.TrimPrefix(path, root)
			}
		}
	}
	for _, glob := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "services/*/README.md", "services/providers/*/README.md", "sdk/*/README.md"} {
		files, err := filepath.Glob(root + glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if base := filepath.Base(f); base != "questions.md" && base != "command.md" { // generated from what is run elsewhere
				read(f)
			}
		}
	}
	err := filepath.WalkDir(root+"deploy", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".tpl", ".txt", ".md", ".json"}, filepath.Ext(path)) {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// goesOn are verbs that do not end by themselves, or that do for minutes what tests of their own run. Lines of them are only parsed: the verb
// must exist and take these flags and arguments.
var goesOn = regexp.MustCompile(`^(up|all-in-one|demo|events|top|shard|coordinator|operator|podcontroller|console|provider (conformance|init|sim|kwok)|snapshot restore)\b`)

// placeholders stand for names; the first that fits is taken, so what says more comes first.
var placeholders = []struct{ form, is string }{
	{`machine[/ ]ID`, "machine/MACHINE"}, {`machines (retry|forget) ID`, "machines $1 MACHINE"}, {`(rollups accept|clusters retire|clusters bind) ID`, "$1 red"},
	{`shard/ID`, "shard/shard-0"}, {`--shard ID`, "--shard shard-0"}, {`cluster/ID`, "cluster/red"}, {`need/CLUSTER/ROW`, "need/red/BATCH"}, {`node/NAME`, "node/NODE"},
	{`pod/NAMESPACE/NAME`, "pod/default/WAITING"}, {`pod NAME`, "pod WAITING"}, {`deployment NAME`, "deployment huge"}, {`cr/NAMESPACE/NAME`, "cr/default/none"},
	{`-n NAMESPACE`, "-n default"}, {`--kube-context CONTEXT`, "--kube-context red"}, {`remove-peer (ID|NODE)`, "remove-peer node-9"}, {`KEY=VALUE`, "topology.kubernetes.io/zone=demo-1a"},
	{`raft-peers ID`, "node-9"}, {`resume (ID|PAUSE)`, "resume p-1"}, {`\bMOVE\b`, "mv-1"}, {`\bEPOCH\b`, "1"}, {`\bSHARD\b`, "shard-0"}, {`\bZONE\b`, "demo-1a"}, {`(certs dev) DIR`, "$1 certificates"},
	{`/\{\{ \.Release\.Namespace \}\}`, "management/bigfleet-system"}, {`\$SHARD`, "shard-0"}, {`\b(TEXT|WHY)\b`, "tested"}, {`\b(ADDR|ADDRESS|host:port)\b`, "PROVIDER"}, {`snapshot (save|verify) FILE`, "snapshot $1 archive"}, {`--kubeconfig FILE`, ""}, {`--stop-at N`, "--stop-at 50"}, {`--machines N`, "--machines 11"},
}

// executable makes a command line that can be run here of one as people read it; "" when it only names a verb.
func executable(line string, names map[string]string) string {
	verb, rest, err := cli.New(app.New(env.System())).Find(strings.Fields(strings.ReplaceAll(line, "'", "")))
	if err != nil {
		return line // running it says what is wrong
	}
	if goesOn.MatchString(line) && !strings.Contains(line, "--once") || strings.Contains(line, "--via-kube=/") { // a management cluster is what the tests of viakube call
		return ""
	}
	if len(rest) == 0 && (verb.ValidateArgs(nil) != nil || verb.ValidateRequiredFlags() != nil || !verb.Runnable() || verb.HasSubCommands() || verb.Flags().Lookup("reason") != nil) {
		return ""
	}
	for _, p := range placeholders {
		line = regexp.MustCompile(p.form).ReplaceAllString(line, p.is)
	}
	if verb.Flags().Lookup("reason") != nil && verb.Flags().Lookup("yes") != nil && !strings.Contains(line, "--reason") { // which every order needs, and few pages repeat
		line += " --reason tested"
	}
	for _, flag := range []string{"dry-run", "yes"} {
		if verb.Flags().Lookup(flag) != nil && !strings.Contains(line, "--"+flag) {
			line += " --" + flag
		}
	}
	return regexp.MustCompile(`\b[A-Z]+\b`).ReplaceAllStringFunc(line, func(word string) string {
		if name, ok := names[word]; ok {
			return name
		}
		return word
	})
}

// parses says what is wrong with a command line that is not run, or nothing.
func parses(line string) error {
	for _, p := range placeholders {
		line = regexp.MustCompile(p.form).ReplaceAllString(line, p.is)
	}
	line = regexp.MustCompile(`'[^']*'`).ReplaceAllString(line, "quoted")
	verb, rest, err := cli.New(app.New(env.System())).Find(strings.Fields(line))
	if err != nil || len(rest) == 0 { // it only names a verb
		return err
	}
	if err := verb.ParseFlags(rest); err != nil {
		return err
	}
	return verb.ValidateArgs(verb.Flags().Args())
}

// OPS-14.2: every command line of every page, runbook and alert is one that runs. It may find nothing (3), find something wrong (4) or be
// refused by the state of this fleet (7); it may not be misspelt (2), and it may not fail (1, 5, 6).
func everyCommandRuns(t *testing.T, names map[string]string, run func(string) (int, string)) {
	all, ran := written(t), 0
	for line, file := range all {
		command := executable(line, names)
		if command == "" {
			if err := parses(line); err != nil {
				t.Errorf("%s: `bigfleet %s` is no command line: %v", file, line, err)
			}
			continue
		}
		ran++
		if got, out := run(command); !slices.Contains([]int{0, 3, 4, 7}, got) {
			t.Errorf("%s: `bigfleet %s` ends with %d\n$ bigfleet %s\n%s", file, line, got, command, out)
		}
	}
	if ran < 50 || len(all) < 80 {
		t.Errorf("of %d command lines only %d ran", len(all), ran)
	}
}
