package reference_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/reference"
)

// OPS-4.12, 14.2: the committed page is what the command says of itself.
func TestPageIsCurrent(t *testing.T) {
	have, err := os.ReadFile("../../../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := reference.Page(&want, cli.New(app.New(env.System()))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("docs/command.md is not what the command says: run `go generate ./internal/reference` in services/bigfleet")
	}
}
