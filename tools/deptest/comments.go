package deptest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	declaration = regexp.MustCompile(`^(?:func (?:\([^)]*\) )?|type )(\w+)`)
	describes   = regexp.MustCompile(`^// ([a-z]\w*)`)
)

// CheckDocComments lists where a comment above a function or a type begins with another name than that of the function or type, as
// "file:line: what": a name that was changed and left behind in the comment. Tests and generated code are left out.
func CheckDocComments(dir string, files []string) ([]string, error) {
	var out []string
	for _, name := range files {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		out = append(out, staleComments(name, string(text))...)
	}
	return out, nil
}

func staleComments(file, text string) (out []string) {
	first, at := "", 0 // line of the comment at hand
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "//") {
			if first == "" {
				first, at = line, n+1
			}
			continue
		}
		d, c := declaration.FindStringSubmatch(line), describes.FindStringSubmatch(first)
		if d != nil && c != nil && d[1] != c[1] {
			out = append(out, fmt.Sprintf("%s:%d: the comment of %s begins with %q", file, at, d[1], c[1]))
		}
		first = ""
	}
	return out
}
