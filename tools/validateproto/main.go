// Command validateproto writes buf/validate/validate.proto from the descriptor that the protovalidate Go module carries.
//
// The Buf registry cannot be reached where this repository is built, so the rules' schema is a local module of the Buf
// workspace. Rendering it from the very module that evaluates the rules keeps the two in step. `make generate` runs it
// and CI compares the result with what is committed.
//
// Usage: validateproto DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: validateproto DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "validateproto:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	var printer protoprint.Printer
	text, err := printer.PrintProtoToString(validate.File_buf_validate_validate_proto)
	if err != nil {
		return fmt.Errorf("render the descriptor: %w", err)
	}
	path := filepath.Join(dir, "buf", "validate", "validate.proto")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
