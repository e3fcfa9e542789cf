package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
)

// OPS-7.6: three ways to install the definitions, the same content.
func TestCopiesEqualTheDefinitions(t *testing.T) {
	for _, f := range crds.All() {
		for path, want := range Copies(f.Name, f.YAML) {
			got, err := os.ReadFile(filepath.Join("../../../../deploy", path))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("deploy/%s differs from sdk/kube/crds/%s: run go generate in sdk/kube", path, f.Name)
			}
		}
	}
}

// OPS-7.4: the chart templates keep the definitions on uninstall, because deleting one deletes all demand.
func TestChartTemplatesKeepTheDefinitions(t *testing.T) {
	for _, f := range crds.All() {
		for path, content := range Copies(f.Name, f.YAML) {
			if filepath.Dir(path) != "crds" && !bytes.Contains(content, []byte("\n    helm.sh/resource-policy: keep\n")) {
				t.Errorf("%s lacks the keep policy", path)
			}
		}
	}
}

// WIRE-10.3: the policy of the operator's chart is the one that is applied without helm.
func TestPolicyOfTheChart(t *testing.T) {
	read := func(path string) []byte {
		b, err := os.ReadFile(filepath.Join("../../../../deploy", path))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(read(policyTemplate), Guarded(read(Policy))) {
		t.Errorf("deploy/%s differs from deploy/%s: run go generate in sdk/kube", policyTemplate, Policy)
	}
}
