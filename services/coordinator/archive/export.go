package archive

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

const latest = "latest"

// exportName is <UTC yyyymmdd-hhmmss>-<index>.
var exportName = regexp.MustCompile(`^\d{8}-\d{6}-\d+$`)

// Export writes an archive as a directory of its own under dir, makes `latest` point to it, and removes the oldest
// beyond keep (COORD-15.2). A crash or a full target leaves `latest` as it was.
func Export(dir string, meta Meta, state []byte, keep int) (bytes int64, err error) {
	text, err := meta.JSON()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp(dir, ".export-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // renamed when all went well
	for _, f := range files(text, state) {
		if err := writeFile(filepath.Join(tmp, f.name), f.data); err != nil {
			return 0, err
		}
		bytes += int64(len(f.data))
	}
	if err := syncDir(tmp); err != nil {
		return 0, err
	}
	name := fmt.Sprintf("%s-%d", meta.CreatedAt.UTC().Format("20060102-150405"), meta.Index)
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	if err := point(dir, name); err != nil {
		return 0, err
	}
	return bytes, prune(dir, keep)
}

// point makes latest a link to name in one step.
func point(dir, name string) error {
	next := filepath.Join(dir, ".latest-next")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.Symlink(name, next), os.Rename(next, filepath.Join(dir, latest)), syncDir(dir))
}

// prune removes the oldest exports beyond keep, and what crashes left behind an hour ago or earlier.
func prune(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if exportName.MatchString(e.Name()) {
			names = append(names, e.Name())
			continue
		}
		if info, err := e.Info(); err == nil && len(e.Name()) > 8 && e.Name()[:8] == ".export-" && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(names, func(x, y string) int { // by time, then by index as a number
		return cmp.Or(cmp.Compare(x[:15], y[:15]), cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
	var errs []error
	for len(names) > max(keep, 1) {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, names[0])))
		names = names[1:]
	}
	return errors.Join(errs...)
}

// Exported is the index of the export that latest points to; 0 when there is none.
func Exported(dir string) uint64 {
	a, err := os.Readlink(filepath.Join(dir, latest))
	if err != nil || !exportName.MatchString(a) {
		return 0
	}
	if _, err := os.Stat(filepath.Join(dir, a)); err != nil {
		return 0
	}
	var index uint64
	if _, err := fmt.Sscanf(a[16:], "%d", &index); err != nil {
		return 0
	}
	return index
}

func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
