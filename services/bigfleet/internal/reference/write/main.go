// Command write writes the reference page to the file that it is given.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/reference"
)

func main() {
	var page bytes.Buffer
	err := reference.Page(&page, cli.New(app.New(env.System())))
	if err == nil {
		err = os.WriteFile(os.Args[1], page.Bytes(), 0o644) //nolint:gosec // a page of the documentation
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
