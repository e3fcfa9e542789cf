package cli_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// OPS-5.1, adr/0170: a user's first minute compiles all that the command imports. It needs none of these: one exporter of
// traces speaks through the Connect client, and clients of the API groups in use replace the clientset of all groups.
func TestWhatGoRunCompiles(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/bigfleet-dev/bigfleet/services/bigfleet").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	for _, p := range []string{"google.golang.org/grpc", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers"} {
		if slices.Contains(all, p) {
			t.Errorf("bigfleet compiles %s: `go mod why` says through whom", p)
		}
	}
	if !slices.Contains(all, "k8s.io/client-go/rest") {
		t.Errorf("the list is not of the command: %d packages", len(all))
	}
}
