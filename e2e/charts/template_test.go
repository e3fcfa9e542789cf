package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/template"
)

// PROV-23.1, 28.15: the chart that every new provider begins with lints, renders what Kubernetes takes, and gives the program
// arguments and a configuration that it accepts.
func TestChartOfTheProviderTemplate(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, _, err := template.Write(template.Params{Name: "acme", Dir: filepath.Join(t.TempDir(), "acme"), Checkout: root})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "acme")
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", binary, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	chart := filepath.Join(dir, "chart")
	for name, values := range map[string]string{
		"as it comes": "useFakeBackend: true",
		"everything": `
useFakeBackend: true
tls: {secretName: provider-tls}
persistence: {existingClaim: state}
serviceAccount: {create: false, name: provider}
envFrom: [{secretRef: {name: cloud}}]
extraArgs: [--reconcile-interval=20s]
nodeSelector: {role: control}
tolerations: [{key: control, operator: Exists}]
imagePullSecrets: [{name: pull}]
podAnnotations: {team: platform}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t.Context(), chart, values, "lint", ".", "--strict", "--kube-version", KubeVersion, "--values", "-"); err != nil {
				t.Fatal(err)
			}
			out, err := Render(t.Context(), Release{Chart: chart, Name: "capacity", Namespace: "bigfleet", Values: values})
			if err != nil {
				t.Fatal(err)
			}
			check(t, binary, statefulSet(t, out).Spec.Template.Spec.Containers[0].Args, settings(t, out))
		})
	}
}

// settings is the rendered configuration file.
func settings(t testing.TB, render []byte) string {
	t.Helper()
	for doc := range strings.SplitSeq(string(render), "\n---\n") {
		var m corev1.ConfigMap
		if strings.Contains(doc, "\nkind: ConfigMap\n") {
			if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
				t.Fatal(err)
			}
			return m.Data["config.yaml"]
		}
	}
	t.Fatal("no ConfigMap in the render")
	return ""
}

// check starts the program with the rendered arguments, with the Pod's paths moved into a directory of the test.
func check(t *testing.T, binary string, args []string, config string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	moved := []string{"--check"}
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "--tls-"), a == "--require-tls": // files of the Secret
		default:
			moved = append(moved, strings.NewReplacer("/etc/bigfleet/config", dir, "/var/lib/bigfleet", dir).Replace(a))
		}
	}
	if out, err := exec.CommandContext(t.Context(), binary, moved...).CombinedOutput(); err != nil || !strings.Contains(string(out), "1 offerings, 40 slots") {
		t.Error(fmt.Errorf("%v: %w\n%s", moved, err, out))
	}
}
