package coordinator_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// COORD-1.1, 1.2: a coordinator dials its peers alone. It makes clients of its own two services alone, never of a
// shard, a provider or a cluster; what it has to say goes with the answers to reports.
func TestWhomItDials(t *testing.T) {
	client := regexp.MustCompile(`^New[A-Za-z]+Client$`)
	own := map[string]bool{"NewClient": true, "NewCoordinatorClient": true, "NewCoordinatorAdminClient": true}
	made, files := 0, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "coordinatortest/") {
			return err
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && client.MatchString(s.Sel.Name) {
				if made++; !own[s.Sel.Name] {
					t.Errorf("%s makes a client: %s", path, s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if made == 0 || files < 50 {
		t.Fatalf("%d clients in %d files: this looks at the wrong place", made, files)
	}
}

// COORD-1.8: the client that finds the leader is kit's, and kit knows nothing of the coordinator.
func TestKitDoesNotKnowTheCoordinator(t *testing.T) {
	command := exec.Command("go", "list", "-deps", "-test", "./...")
	command.Dir = filepath.Join("..", "kit")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "services/kit/coordclient") || strings.Contains(string(out), "services/coordinator") {
		t.Error("kit has no leader client, or it reaches the coordinator")
	}
}
