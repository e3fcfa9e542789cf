package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The parts of an SPDX 2.3 document that say which modules a binary is made of.
type (
	spdxDocument struct {
		Version      string             `json:"spdxVersion"`
		ID           string             `json:"SPDXID"`
		Name         string             `json:"name"`
		Namespace    string             `json:"documentNamespace"`
		License      string             `json:"dataLicense"`
		Creation     spdxCreation       `json:"creationInfo"`
		Packages     []spdxPackage      `json:"packages"`
		Relationship []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID       string    `json:"SPDXID"`
		Name     string    `json:"name"`
		Version  string    `json:"versionInfo"`
		Download string    `json:"downloadLocation"`
		Refs     []spdxRef `json:"externalRefs"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// writeSBOMs writes NAME.spdx.json beside each binary, from what the linker wrote into it.
func (p *plan) writeSBOMs() error {
	entries, err := os.ReadDir(filepath.Join(p.out, "bin"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(p.out, "bin", e.Name())
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			continue // SHA256SUMS
		}
		data, err := json.MarshalIndent(p.sbom(e.Name(), info), "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(name+".spdx.json", append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) sbom(name string, info *buildinfo.BuildInfo) spdxDocument {
	d := spdxDocument{Version: "SPDX-2.3", ID: "SPDXRef-DOCUMENT", Name: name, License: "CC0-1.0",
		Creation: spdxCreation{released.Format("2006-01-02T15:04:05Z"), []string{"Tool: bigfleet-release-" + p.version}}}
	add := func(path, version string) {
		id := fmt.Sprintf("SPDXRef-%d", len(d.Packages))
		d.Packages = append(d.Packages, spdxPackage{ID: id, Name: path, Version: version, Download: "NOASSERTION",
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}}})
		relation, from := "DEPENDS_ON", "SPDXRef-0"
		if id == from {
			relation, from = "DESCRIBES", d.ID
		}
		d.Relationship = append(d.Relationship, spdxRelationship{from, relation, id})
	}
	add(info.Main.Path, p.version)
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	sum := sha256.New()
	for _, m := range info.Deps {
		add(m.Path, m.Version)
		_, _ = fmt.Fprintln(sum, m.Path, m.Version, m.Sum)
	}
	d.Namespace = fmt.Sprintf("https://github.com/bigfleet-dev/bigfleet/sbom/%s-%x", name, sum.Sum(nil)[:8])
	return d
}
