// Command write writes the schema of answers to the file that it is given.
package main

import (
	"fmt"
	"os"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/schema"
)

func main() {
	text, err := schema.Text()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644) //nolint:gosec // a page of the documentation
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
