package epoch

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// SHARD-20.1, 20.3: whatever the file holds, Take refuses it and leaves it alone, or returns a number above the one in it
// that is in the file from then on.
func FuzzEpochFile(f *testing.F) {
	for _, s := range []string{"", "1", "1800000000\n", " 7 ", "-1", "9223372036854775807", "9223372036854775806", "1e9", "0x10", "٣", "1\x00", "00", "7 crc32c=00000000\n", format(7)} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Take(dir, time.Unix(1_800_000_000, 0), 0)
		after, _ := os.ReadFile(path)
		if err != nil {
			if string(after) != string(content) {
				t.Errorf("%q was refused and changed to %q", content, after)
			}
			return
		}
		before, whole := parse(string(content))
		if !whole || before == math.MaxInt64 || n <= before || n < 1_800_000_000 || string(after) != format(n) {
			t.Errorf("%q gave epoch %d, and the file holds %q", content, n, after)
		}
	})
}
