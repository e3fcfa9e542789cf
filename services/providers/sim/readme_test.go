package sim

import (
	"io"
	"net/http"
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

// WIRE-4.7, PROV-24.3: a misspelt field of an order would widen its selector to everything, so it is refused and named.
func TestMisspeltOrders(t *testing.T) {
	r := start(t, short)
	for _, c := range []struct{ call, body, says string }{
		{"SetStock", `{"zone":"sim-east-1a","stock":0}`, "zone"},
		{"SetStock", `{"selector":{"zoone":"sim-east-1a"},"stock":0}`, "zoone"},
		{"SetStock", `{"selector":{"zone":"nowhere"},"stock":0}`, "no pool matches"},
		{"Interrupt", `{"machineId":"sim-1"}`, "machineId"},
		{"SetPrice", `{"selector":{"zone":"sim-east-1a"}}`, "nothing to set"},
		{"GetState", ``, "the body is empty"},
	} {
		answer, err := http.Post("http://"+r.ControlAddr()+"/bigfleet.v1alpha1.SubstrateControl/"+c.call, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode == http.StatusOK || !strings.Contains(string(text), c.says) {
			t.Errorf("%s %s: %s %s (%v), want a refusal with %q", c.call, c.body, answer.Status, text, err, c.says)
		}
	}
}
