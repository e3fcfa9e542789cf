package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeNPM writes the archive of gen/ts as `npm pack` would, without npm: package.json with the version of the release, the files
// that it lists, the page about it and the license.
func (p *plan) writeNPM() error {
	dir := filepath.Join(p.root, "gen", "ts")
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return err
	}
	var described struct {
		Name    string
		Version string
		Files   []string
	}
	if err := json.Unmarshal(text, &described); err != nil {
		return fmt.Errorf("gen/ts/package.json: %w", err)
	}
	version := strings.TrimPrefix(p.version, "v")
	own := fmt.Sprintf("%q: %q", "version", described.Version)
	if strings.Count(string(text), own) != 1 {
		return fmt.Errorf("gen/ts/package.json does not hold %s once", own)
	}
	text = []byte(strings.Replace(string(text), own, fmt.Sprintf("%q: %q", "version", version), 1))
	files := map[string]entry{"package/package.json": {text, 0o644}}
	for _, path := range append(described.Files, "README.md") {
		if err := p.addTracked(files, "gen/ts/"+path, "gen/ts/", "package/"); err != nil {
			return err
		}
	}
	license, err := os.ReadFile(filepath.Join(p.root, "LICENSE"))
	if err != nil {
		return err
	}
	files["package/LICENSE"] = entry{license, 0o644}
	name := strings.NewReplacer("@", "", "/", "-").Replace(described.Name) + "-" + version + ".tgz"
	return writeArchive(filepath.Join(p.out, "npm", name), files)
}

// addTracked adds what git knows below a path to files, with another prefix.
func (p *plan) addTracked(files map[string]entry, below, from, to string) error {
	list, err := p.git("ls-files", "-z", "--", below)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(p.root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		files[to+strings.TrimPrefix(name, from)] = entry{data, 0o644}
	}
	return nil
}

// writeArchive writes files as a compressed tar that depends on nothing but them.
func writeArchive(name string, files map[string]entry) error {
	data, err := compressed(files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}
