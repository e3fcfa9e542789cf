package contract_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// root is the repository. The way through testdata is on purpose: Go caches test results and looks again only at files inside the
// module, so a path that leaves it would let yesterday's "ok" stand for a changed specification.
const root = "testdata/repository"

// TestMain looks at every directory that tests read, or that programs read which they start, so that a change there runs them again.
func TestMain(m *testing.M) {
	for _, dir := range []string{"docs/spec", "proto", "gen/go", "gen/openapi", "gen/ts", "tools/protoc-gen-openapi", "tools/validateproto", "services/coordinator/internal/coordinatorlog"} {
		if err := look(filepath.Join(root, dir)); err != nil {
			panic(err)
		}
	}
	for _, file := range []string{"buf.yaml", "services/coordinator/buf.workspace.yaml", "services/coordinator/buf.gen.yaml", "buf.gen.yaml", "buf.gen.ts.yaml", "tools/install.sh", "tools/proto.sh", "tools/go.mod"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func look(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		return err
	})
}
