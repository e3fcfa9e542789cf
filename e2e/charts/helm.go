// Package charts renders the Helm charts of deploy/charts with the pinned helm, and tests them: golden renders, values
// that the schema must refuse, objects that a real API server must accept, and arguments that must start the real
// programs.
//
// helm is built once from tools/helm into the harness cache. Start at Render.
package charts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// KubeVersion is what the charts are rendered for.
const KubeVersion = "1.36.3"

// Release is a chart with values.
type Release struct {
	Chart     string // directory under deploy/charts, or an absolute path
	Name      string // of the release
	Namespace string
	Values    string   // YAML on top of the chart's own
	APIs      []string // further API versions that the cluster has
}

// Render renders a release with helm.
func Render(ctx context.Context, r Release) ([]byte, error) {
	args := []string{"template", r.Name, ".", "--namespace", r.Namespace, "--kube-version", KubeVersion, "--values", "-"}
	for _, api := range r.APIs {
		args = append(args, "--api-versions", api)
	}
	return run(ctx, r.Chart, r.Values, args...)
}

func run(ctx context.Context, chart, stdin string, args ...string) ([]byte, error) {
	helm, err := Helm(ctx)
	if err != nil {
		return nil, err
	}
	root, err := proc.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helm, args...)
	if cmd.Dir = chart; !filepath.IsAbs(chart) {
		cmd.Dir = filepath.Join(root, "deploy", "charts", chart)
	}
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm %s %s: %w\n%s", args[0], chart, err, complaint.String())
	}
	return out.Bytes(), nil
}

// Helm returns the path of the pinned helm, built if this machine lacks it.
func Helm(ctx context.Context) (string, error) { return tool(ctx, "helm", "helm.sh/helm/v3/cmd/helm") }

// tool builds a main package that the module tools/<module> pins, once per content of its go.sum.
func tool(ctx context.Context, module, pkg string) (string, error) {
	root, err := proc.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "tools", module)
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", err
	}
	base, err := cache.Root()
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(append(sum, runtime.Version()+runtime.GOOS+runtime.GOARCH...))
	entry := filepath.Join(base, "tools", module+"-"+hex.EncodeToString(h[:6]))
	binary := filepath.Join(entry, filepath.Base(pkg))
	if err := os.MkdirAll(filepath.Dir(entry), 0o755); err != nil {
		return "", err
	}
	release, err := cache.Lock(ctx, entry+".lock", nil)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	fresh, err := os.MkdirTemp(filepath.Dir(entry), "building-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", fresh+string(filepath.Separator), pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s of tools/%s: %w\n%s", pkg, module, err, out)
	}
	return binary, os.Rename(fresh, entry)
}
