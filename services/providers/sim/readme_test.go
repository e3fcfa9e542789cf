package sim

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The commands of the README change a running world: each is run as it stands, but for the port.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the README has no commands")
	}
	r := start(t, short)
	script := strings.ReplaceAll(string(block[1]), "127.0.0.1:9001", r.ControlAddr())
	out, err := exec.CommandContext(t.Context(), "bash", "-euc", "curl() { command curl -sf \"$@\"; }\n"+script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"stock"`) && !strings.Contains(string(out), `"pools"`) {
		t.Errorf("%v\n%.2000s", err, out)
	}
}
