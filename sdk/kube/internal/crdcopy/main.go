// Command crdcopy writes the generated CustomResourceDefinitions to every place under deploy/ that ships them: the plain
// YAML in deploy/crds, and the templates of the charts bigfleet-crds and bigfleet-operator. All places hold the same
// content; the chart templates add the annotation that makes Helm keep the definitions on uninstall, because deleting
// a definition deletes every request of every tenant. The admission policy of deploy/admission becomes a template of the
// operator's chart in the same way.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	from := flag.String("from", "crds", "directory with the generated definitions")
	to := flag.String("to", "../../deploy", "the deploy directory")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "crdcopy:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	names, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("no definition in %s", from)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		base := filepath.Base(name)
		for path, content := range Copies(base, b) {
			path = filepath.Join(to, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
		}
	}
	policy, err := os.ReadFile(filepath.Join(to, Policy))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, policyTemplate), Guarded(policy), 0o644)
}

// Policy is the admission policy, below the deploy directory (WIRE-10.3).
const Policy = "admission/capacityrequests.yaml"

const policyTemplate = "charts/bigfleet-operator/templates/admission.yaml"

// Guarded is the policy as a template: it is rendered when asked for.
func Guarded(policy []byte) []byte {
	return slices.Concat([]byte("{{- if (.Values.admissionPolicy).create }}\n"), policy, []byte("{{- end }}\n"))
}

// Copies returns the files under deploy/ that one definition becomes, by path.
func Copies(base string, yaml []byte) map[string][]byte {
	kept := bytes.Replace(yaml, []byte("  annotations:\n"), []byte("  annotations:\n    helm.sh/resource-policy: keep\n"), 1)
	guarded := append([]byte("{{- if .Values.crds.install }}\n"), bytes.TrimPrefix(kept, []byte("---\n"))...)
	guarded = append(guarded, []byte("{{- end }}\n")...)
	return map[string][]byte{
		filepath.Join("crds", base):                                            yaml,
		filepath.Join("charts", "bigfleet-crds", "templates", base):            kept,
		filepath.Join("charts", "bigfleet-operator", "templates", "crd-"+base): guarded,
	}
}
