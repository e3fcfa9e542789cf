package deptest

import (
	"regexp"
	"strings"
	"testing"
)

// docs/engine.md leads from each section of the engine's specification to files that exist, in the order of the sections.
func TestEngineMapIsComplete(t *testing.T) {
	p := pointers(t)
	_, table, found := strings.Cut(read(t, "docs/engine.md"), "\n## From a rule to its file\n")
	if !found {
		t.Fatal("docs/engine.md has no map")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| \[([0-9]+\. [^\]]+)\]\(spec/engine\.md#[^)]+\) \|.*$`).FindAllStringSubmatch(table, -1)
	sections := regexp.MustCompile(`(?m)^## ([0-9]+\. .*)$`).FindAllStringSubmatch(read(t, "docs/spec/engine.md"), -1)
	if len(rows) != len(sections) || len(sections) < 20 {
		t.Errorf("the map has %d sections, the specification %d", len(rows), len(sections))
	}
	for i := range min(len(rows), len(sections)) {
		if rows[i][1] != strings.ReplaceAll(sections[i][1], "`", "") {
			t.Errorf("the map has %q where the specification has %q", rows[i][1], sections[i][1])
		}
		files := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.TrimPrefix(rows[i][0], "| ["+rows[i][1]), -1)
		if len(files) == 0 {
			t.Errorf("%s leads to no file", rows[i][1])
		}
		for _, f := range files {
			if !p.exists["services/shard/internal/"+f[1]] && !p.exists[f[1]] {
				t.Errorf("%s leads to %s, which does not exist", rows[i][1], f[1])
			}
		}
	}
}
