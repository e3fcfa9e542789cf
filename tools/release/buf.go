package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var moduleName = regexp.MustCompile(`(?m)^    name: (\S+)$`)

// writeBuf writes the protos as the Buf module that buf.yaml names. The repository has the rules of the fields beside them, so that
// it builds without a registry; the module requires them by name.
func (p *plan) writeBuf() error {
	text, err := os.ReadFile(filepath.Join(p.root, "buf.yaml"))
	if err != nil {
		return err
	}
	names := moduleName.FindAllSubmatch(text, -1)
	if len(names) != 1 {
		return fmt.Errorf("buf.yaml names %d modules, want one", len(names))
	}
	config := fmt.Sprintf("version: v2\nmodules:\n  - path: .\n    name: %s\ndeps:\n  - buf.build/bufbuild/protovalidate\n", names[0][1])
	files := map[string]entry{"buf.yaml": {data: []byte(config)}}
	if err := p.addTracked(files, "proto/bigfleet", "proto/", ""); err != nil {
		return err
	}
	for name, file := range files {
		to := filepath.Join(p.out, "buf", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, file.data, 0o644); err != nil {
			return err
		}
	}
	return copyFile(filepath.Join(p.root, "LICENSE"), filepath.Join(p.out, "buf", "LICENSE"))
}
