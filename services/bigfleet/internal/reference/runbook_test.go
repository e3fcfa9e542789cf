package reference_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../../.."

// headings are the anchors of a page, as GitHub makes them.
func headings(t *testing.T, page string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Errorf("linked to: %v", err)
		return nil
	}
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(raw), -1) {
		slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	}
	return out
}

// OPS-9.5: every alert that is shipped has a page in a runbook, and every link from deploy/ to a page of docs/ leads to a
// heading that is there.
func TestRunbookLinks(t *testing.T) {
	link := regexp.MustCompile(`blob/main/(docs/[A-Za-z0-9_/.-]+\.md)(?:#([A-Za-z0-9_-]+))?`)
	pages, alerts := map[string][]string{}, 0
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".json", ".tpl", ".md"}, filepath.Ext(path)) {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(raw), -1) {
			page, anchor := m[1], m[2]
			if _, seen := pages[page]; !seen {
				pages[page] = headings(t, page)
			}
			if anchor != "" && !slices.Contains(pages[page], anchor) {
				t.Errorf("%s links to %s#%s, and there is no such heading", path, page, anchor)
			}
		}
		for _, rule := range regexp.MustCompile(`(?m)^\s*- alert: `).Split(string(raw), -1)[1:] {
			alerts++
			if name, _, _ := strings.Cut(rule, "\n"); !strings.Contains(rule, "runbook_url: ") {
				t.Errorf("%s: alert %s has no runbook_url", path, name)
			}
		}
		return nil
	})
	if err != nil || alerts < 20 || len(pages) < 2 {
		t.Errorf("%d alerts and %d pages found, %v", alerts, len(pages), err)
	}
}

// OPS-9.6: the runbook leads to every procedure of the specification, and what it links to is there.
func TestRunbookProcedures(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n## Procedures\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, want := range []string{"Stock-out triage", "Total loss of the coordinator, and restore", "One replica's disk lost", "Shard disk lost", "CA rotation",
		"Rebinding a cluster", "Splitting, merging, removing a shard", "Dead cluster", "Runaway buying", "Runaway draining", "Provider outage", "Upgrade and rollback"} {
		if !strings.Contains(table, "| "+want) {
			t.Errorf("no procedure: %s", want)
		}
	}
	links := regexp.MustCompile(`\]\(([a-z.]*)#([a-z-]+)\)`).FindAllStringSubmatch(table, -1)
	for _, l := range links {
		page := "docs/runbook.md"
		if l[1] != "" {
			page = "docs/" + l[1]
		}
		if !slices.Contains(headings(t, page), l[2]) {
			t.Errorf("%s has no heading %s", page, l[2])
		}
	}
	if len(links) < 12 {
		t.Errorf("%d links", len(links))
	}
}
