package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tools/proto.sh fails, with the names of the files and with what to do, when something generated was edited, is left over or
// missing, and when a proto is unformatted, breaks lint or breaks the baselines. On a clean tree it passes and writes nothing.
func TestProtoScriptNamesWhatIsWrong(t *testing.T) {
	copied := copyOfTheRepository(t)
	script := func(verb string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(copied, "tools", "proto.sh"), verb)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, verb := range []string{"generate-check", "check"} {
		if out, err := script(verb); err != nil {
			t.Fatalf("%s of an unchanged copy: %v\n%s", verb, err, out)
		}
	}

	const edited, stale, missing = "gen/go/bigfleet/v1alpha1/problem.pb.go", "gen/openapi/old.yaml", "proto/third_party/protovalidate/buf/validate/validate.proto"
	rewrite(t, filepath.Join(copied, edited), func(s string) string { return s + "\n// edited by hand\n" })
	write(t, filepath.Join(copied, stale), "left over\n")
	rewrite(t, filepath.Join(copied, missing), func(s string) string { return strings.Replace(s, "message Rule {", "message Rule { // edited", 1) })
	out, err := script("generate-check")
	if err == nil {
		t.Error("generate-check passes over edits")
	}
	for _, want := range []string{edited, stale, missing, "make generate"} {
		if !strings.Contains(out, want) {
			t.Errorf("generate-check does not name %s:\n%s", want, out)
		}
	}
	if out, err := script("generate"); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	if out, err := script("generate-check"); err != nil {
		t.Errorf("generate-check after generate: %v\n%s", err, out)
	}

	rewrite(t, filepath.Join(copied, "proto/bigfleet/v1alpha1/problem.proto"), func(s string) string {
		return strings.Replace(s, "  int64 after_millis = 1;", "    int32 AfterMillis=1;", 1)
	})
	out, err = script("check")
	if err == nil {
		t.Error("check passes over a bad proto")
	}
	for _, want := range []string{"should be lower_snake_case", "not formatted", "breaks proto/baseline/release.binpb"} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q:\n%s", want, out)
		}
	}
}

// copyOfTheRepository copies what the script reads; the built tools and npm packages are linked.
func copyOfTheRepository(t *testing.T) string {
	t.Helper()
	if _, err := installed(); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	if real, err = filepath.Abs(real); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	for _, dir := range []string{"proto", "gen/go/bigfleet", "gen/openapi", "gen/ts/bigfleet", "gen/ts/buf", "tools/validateproto", "tools/protoc-gen-openapi", "services/coordinator/internal/coordinatorlog"} {
		if err := os.CopyFS(filepath.Join(copied, dir), os.DirFS(filepath.Join(root, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"buf.yaml", "services/coordinator/buf.workspace.yaml", "services/coordinator/buf.gen.yaml", "buf.gen.yaml", "buf.gen.ts.yaml", "tools/go.mod", "tools/go.sum", "tools/install.sh", "tools/proto.sh", "gen/ts/package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(copied, file), string(text))
	}
	for _, dir := range []string{".bin", "gen/ts/node_modules"} {
		if err := os.Symlink(filepath.Join(real, dir), filepath.Join(copied, dir)); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { // scripts must stay executable
		t.Fatal(err)
	}
}
