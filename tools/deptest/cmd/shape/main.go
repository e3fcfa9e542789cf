// Command shape prints what a reader of the shard meets: lines, files, references between files and the largest types of each of its
// packages. It reads the folder that it is given, so that any commit can be measured.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"log"
	"path/filepath"
	"strings"

	"github.com/bigfleet-dev/bigfleet/tools/deptest"
)

func main() {
	top := flag.String("dir", "services/shard/internal", "the folder whose packages are measured")
	flag.Parse()
	fmt.Println("| Package | Files | Lines | Longest file | References between files | Backward | Largest types by methods |")
	fmt.Println("|---|---|---|---|---|---|---|")
	err := filepath.WalkDir(*top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || strings.Contains(path, "testdata") {
			return err
		}
		s, err := deptest.ShapeOf(path)
		if err != nil || s.Files == 0 {
			return err
		}
		name, err := filepath.Rel(*top, path)
		fmt.Printf("| `%s` | %d | %d | %d | %d | %d | %s |\n", filepath.ToSlash(name), s.Files, s.Lines, s.Longest, s.References, s.Backward, s.Largest(2))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
