package operator

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

var (
	numbered  = regexp.MustCompile(`(?m)^(\d+)\. Given`)
	citation  = regexp.MustCompile(`(?i)(\w+ )?scenarios? (\d+(?:(?:, | and | to |, and )\d+)*)`)
	stretches = regexp.MustCompile(`(\d+)(?: to (\d+))?`)
)

// Every scenario of section 21 of the operator specification is cited by a test.
func TestEveryScenarioIsCited(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(filepath.Join(root, "docs", "spec", "operator.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(spec), "\n## 21. Scenarios\n")
	if !found {
		t.Fatal("the specification has no section 21")
	}
	cited := map[int]string{}
	for _, dir := range []string{"services/operator", "services/podcontroller", "services/incluster", "e2e/operator", "e2e/charts"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				if _, comment, ok := strings.Cut(line, "//"); ok {
					cite(cited, comment, path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	list := numbered.FindAllStringSubmatch(section, -1)
	if len(list) != 51 {
		t.Errorf("the specification has %d scenarios; this test knew 51", len(list))
	}
	for _, m := range list {
		if n, _ := strconv.Atoi(m[1]); cited[n] == "" {
			t.Errorf("scenario %d is cited by no test", n)
		}
	}
}

// cite notes the scenarios that a comment names, unless they are another specification's.
func cite(cited map[int]string, comment, path string) {
	for _, m := range citation.FindAllStringSubmatch(comment, -1) {
		if prefix := strings.TrimSpace(m[1]); prefix == "WIRE" || prefix == "SHARD" || prefix == "OPS" || prefix == "PROV" {
			continue
		}
		for _, s := range stretches.FindAllStringSubmatch(m[2], -1) {
			from, _ := strconv.Atoi(s[1])
			to := from
			if s[2] != "" {
				to, _ = strconv.Atoi(s[2])
			}
			for n := from; n <= to; n++ {
				cited[n] = path
			}
		}
	}
}
