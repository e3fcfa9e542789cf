package deptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// fileBytesMax is the largest file of the tree outside largeAllowed. Twice the largest source file; a clone stays small.
const fileBytesMax = 300 << 10

// largeAllowed are the folders and names whose files may be larger: generated code, the specification, the contract's baseline
// and lock files.
var largeAllowed = []string{"gen/", "docs/spec/", "proto/baseline/", "go.sum", "go.sum.txt", "package-lock.json"}

// recordings are names that tools give to what they write when a test fails or a program is measured. They belong to one run.
var recordings = []string{"*.prof", "*.pprof", "*.test", "*.out", "*.fail", "core", "core.[0-9]*", "*.log"}

// executables are the first bytes of programs.
var executables = map[string]string{
	"\x7fELF":          "ELF",
	"\xfe\xed\xfa\xce": "Mach-O",
	"\xfe\xed\xfa\xcf": "Mach-O",
	"\xce\xfa\xed\xfe": "Mach-O",
	"\xcf\xfa\xed\xfe": "Mach-O",
	"\xca\xfe\xba\xbe": "Mach-O",
	"MZ":               "PE",
}

// Files lists what git tracks under dir, relative to dir, sorted. Files deleted from the working tree are left out.
func Files(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached")
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, found := errors.AsType[*exec.ExitError](err); found {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		files = append(files, name)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// CheckFiles says what files, relative to dir, do not belong in a repository, and why: programs, large files, records of
// failures.
func CheckFiles(dir string, files []string) ([]string, error) {
	var out []string
	for _, name := range files {
		why, err := unwanted(filepath.Join(dir, filepath.FromSlash(name)), name)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out = append(out, name+": "+why)
		}
	}
	return out, nil
}

func unwanted(file, name string) (string, error) {
	if strings.Contains("/"+name, "/testdata/rapid/") {
		return "a failure that rapid recorded: turn it into a test of its own, or fix it and delete the file", nil
	}
	if slices.ContainsFunc(recordings, func(pattern string) bool { ok, _ := path.Match(pattern, path.Base(name)); return ok }) {
		return "a record of one run: keep it outside of the repository", nil
	}
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	if info.Size() > fileBytesMax && !slices.ContainsFunc(largeAllowed, func(a string) bool {
		return strings.HasPrefix(name, a) || path.Base(name) == a
	}) {
		return fmt.Sprintf("%d KiB, and %d KiB is the limit: every clone of the repository pays for it", info.Size()>>10, fileBytesMax>>10), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	for magic, kind := range executables {
		if bytes.HasPrefix(head[:n], []byte(magic)) {
			return "a program (" + kind + "): build it where it is used, and ignore it in .gitignore", nil
		}
	}
	return "", nil
}
