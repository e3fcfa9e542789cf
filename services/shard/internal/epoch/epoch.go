// Package epoch keeps the number of the life of a shard process.
//
// Every mutating provider call carries the epoch, and a provider refuses an older one. A process that takes an epoch
// at or below that of its predecessor is therefore refused everywhere, and one that takes a number twice can act beside
// its own ghost. Take is called once, before the first command, and returns a number that no earlier life of this data
// directory had; it is on the disk before it is returned.
//
// The package owns the file <data-dir>/epoch and nothing else. It never repairs a file that it cannot read: a person
// decides, with the floor flag. Start at Take. Tests cite SHARD-20.
package epoch

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// FileName is the name of the epoch file inside the data directory.
const FileName = "epoch"

// ErrUnreadable marks content that is not a number with its checksum. The remedy is a floor above every epoch that was ever used.
var ErrUnreadable = errors.New("the epoch file is damaged")

// Take returns the epoch of this process and makes it durable first: the largest of the stored number plus one, the
// Unix seconds of now, and the floor (0 means none).
//
// Unix seconds are in the choice because a lost volume must still outrank its predecessors. A missing file is legal.
// A damaged file is ErrUnreadable unless a floor is given.
func Take(dir string, now time.Time, floor int64) (int64, error) {
	path := filepath.Join(dir, FileName)
	stored, err := read(path)
	if err != nil && (!errors.Is(err, ErrUnreadable) || floor <= 0) {
		return 0, err
	}
	if stored == math.MaxInt64 {
		return 0, fmt.Errorf("epoch %d in %s is the highest possible number, so no process can take a newer one", stored, path)
	}
	next := max(stored+1, now.Unix(), floor)
	if err := write(dir, path, next); err != nil {
		return 0, fmt.Errorf("store epoch %d in %s: %w", next, path, err)
	}
	return next, nil
}

func read(path string) (int64, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the epoch: %w", err)
	}
	n, ok := parse(string(raw))
	if !ok {
		return 0, fmt.Errorf("%w: %s; start once with --epoch-floor set above all epochs that this shard has used "+
			"(the provider's fence rejections name the highest)", ErrUnreadable, path)
	}
	return n, nil
}

// format is the number and its checksum. Without one, a flipped bit would be another number.
func format(n int64) string {
	number := strconv.FormatInt(n, 10)
	return fmt.Sprintf("%s crc32c=%08x\n", number, crc32.Checksum([]byte(number), castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parse reads what format wrote, byte for byte, or the bare number of an earlier build.
func parse(content string) (n int64, ok bool) {
	number, _, summed := strings.Cut(content, " crc32c=")
	if !summed {
		number = strings.TrimSpace(content)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n >= 0 && (!summed || content == format(n))
}

// write replaces the file so that a crash at any point leaves the old number or the new one, never a part of one.
func write(dir, path string, n int64) error {
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(format(n))
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
