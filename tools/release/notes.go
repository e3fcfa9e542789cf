package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// notes is the section of the changelog for this version: its own, or what stands under Unreleased. The error says that it is
// still under Unreleased, which a tagged release refuses.
func (p *plan) notes() (string, error) {
	data, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	if own := section(string(data), p.version); own != "" {
		return own, nil
	}
	return section(string(data), "Unreleased"), fmt.Errorf("CHANGELOG.md has no section %q: rename Unreleased", p.version)
}

// section is the text below the heading "## NAME".
func section(changelog, name string) string {
	_, rest, found := strings.Cut(changelog, "\n## "+name)
	if !found {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.TrimSpace(text) + "\n"
}
