package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	xmod "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// released is the time in every .info, so that equal sources give equal files.
var released = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// writeProxy adds a module to the proxy and returns its two lines of go.sum.
func (p *plan) writeProxy(m *module, dir string) ([]string, error) {
	escaped, err := xmod.EscapePath(m.path)
	if err != nil {
		return nil, err
	}
	at := filepath.Join(p.out, "proxy", filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	base := filepath.Join(at, p.version)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	info, err := json.Marshal(map[string]any{"Version": p.version, "Time": released})
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{base + ".mod": mod, base + ".info": info, filepath.Join(at, "list"): []byte(p.version + "\n")} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return nil, err
		}
	}
	if err := writeZip(base+".zip", xmod.Version{Path: m.path, Version: p.version}, dir); err != nil {
		return nil, err
	}
	sum, err := dirhash.HashZip(base+".zip", dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, opener(mod))
	if err != nil {
		return nil, err
	}
	return []string{m.path + " " + p.version + " " + sum, m.path + " " + p.version + "/go.mod " + modSum}, nil
}

func writeZip(name string, v xmod.Version, dir string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(f, v, dir); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
