package contract_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
)

// WIRE-13.1, 13.3: lint and breaking rules are exactly those of the specification. Another exception is written there first.
func TestBufConfigIsWhatTheSpecificationSays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)- WIRE-13\\.1 .*?```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("WIRE-13.1 holds no configuration")
	}
	file, err := os.ReadFile(filepath.Join(root, "buf.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := parseYAML(t, block[1]), parseYAML(t, file)
	for _, key := range []string{"version", "modules", "lint", "breaking"} {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Errorf("%s in buf.yaml:\n%v\nin WIRE-13.1:\n%v", key, got[key], want[key])
		}
	}
}

func parseYAML(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
