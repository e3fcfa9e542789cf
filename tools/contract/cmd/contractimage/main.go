// Command contractimage writes the image of the contract alone: section 14 of docs/spec/wire.md without extensions.
//
// proto/baseline/contract.binpb was written with it once and is never written again (WIRE-13.4): `buf breaking` compares
// every later schema with it. A test shows that the schema of today, stripped the same way, still equals that file, which is
// what this command is kept for. It refuses to overwrite.
//
// Usage: contractimage REPOSITORY FILE
package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: contractimage REPOSITORY FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "contractimage:", err)
		os.Exit(1)
	}
}

func write(root, path string) error {
	spec, err := contract.ReadSpec(root)
	if err != nil {
		return err
	}
	image, err := proto.MarshalOptions{Deterministic: true}.Marshal(contract.Strip(contract.Generated(), spec))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("the contract image is written once: %w", err)
	}
	if _, err := f.Write(image); err != nil {
		return err
	}
	return f.Close()
}
