package coordinator

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// Every scenario of docs/spec/coordinator.md, section 21, is a test that names it.
func TestEveryScenarioIsATest(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec", "coordinator.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## 21. Scenarios\n")
	if !found {
		t.Fatal("the section of the scenarios has another name")
	}
	cited := map[string]bool{}
	mark := regexp.MustCompile(`\b21\.(\d+)\b`)
	span := regexp.MustCompile(`\b21\.(\d+) to 21\.(\d+)\b`)
	for _, dir := range []string{"services/coordinator", "services/shard", "services/kit/coordclient", "e2e/coordinator"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for line := range strings.Lines(string(code)) {
				comment := strings.TrimSpace(line)
				if !strings.HasPrefix(comment, "//") || strings.Contains(comment, "ENG-21") || strings.Contains(comment, "SHARD-21") {
					continue
				}
				if s := span.FindStringSubmatch(comment); s != nil {
					t.Errorf("%s: name each scenario, not a span: %s", path, comment)
				}
				for _, m := range mark.FindAllStringSubmatch(comment, -1) {
					cited[m[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	scenarios := regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(section, -1)
	if len(scenarios) < 55 {
		t.Fatalf("%d scenarios", len(scenarios))
	}
	for _, s := range scenarios {
		if !cited[s[1]] {
			t.Errorf("no test names COORD-21.%s", s[1])
		}
	}
}
