package epoch

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func stored(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(string(raw), " ")
	return number
}

// SHARD-20.1: the epoch is the largest of the stored number plus one, the Unix seconds and the floor, and it is on the
// disk when Take returns.
func TestTakeGrowsWhateverIsStored(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		file  string
		floor int64
		want  int64
	}{
		"no file, so the clock":          {want: 1_800_000_000},
		"an older life":                  {file: "1700000000\n", want: 1_800_000_000},
		"a life with a clock ahead":      {file: "1900000000", want: 1_900_000_001},
		"a floor above both":             {file: "1900000000", floor: 2_000_000_000, want: 2_000_000_000},
		"a floor below both":             {file: "1900000000", floor: 12, want: 1_900_000_001},
		"garbage, with a floor":          {file: "what", floor: 2_100_000_000, want: 2_100_000_000},
		"an empty file, with a floor":    {file: "\n", floor: 5, want: 1_800_000_000},
		"a negative number with a floor": {file: "-7", floor: 5, want: 1_800_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.file != "" {
				if err := os.WriteFile(filepath.Join(dir, FileName), []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Take(dir, now, c.floor)
			if err != nil || got != c.want {
				t.Fatalf("took %d, %v; want %d", got, err, c.want)
			}
			if s := stored(t, dir); s != strconv.FormatInt(c.want, 10) {
				t.Fatalf("the file holds %q", s)
			}
			again, err := Take(dir, now, c.floor)
			if err != nil || again <= got {
				t.Fatalf("the next life took %d after %d, %v", again, got, err)
			}
		})
	}
}

// SHARD-20.3: content that is not a number stops the start, and the message names the remedy.
func TestUnreadableFileNeedsAFloor(t *testing.T) {
	for _, content := range []string{"", "abc", "12x", "-1", "99999999999999999999", "12 crc32c=", "12 crc32c=00000000\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Take(dir, time.Now(), 0)
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "--epoch-floor") {
			t.Errorf("content %q: %v", content, err)
		}
		if raw, _ := os.ReadFile(filepath.Join(dir, FileName)); string(raw) != content {
			t.Errorf("content %q was changed to %q", content, raw)
		}
	}
}

func TestUsedUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strconv.FormatInt(math.MaxInt64, 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	// stored+1 overflows, so the clock would win and go back: refused instead.
	if n, err := Take(dir, time.Unix(-5, 0), 0); err == nil {
		t.Fatalf("took %d after the largest number", n)
	}
}

// SHARD-20.2: what is left of an interrupted write is ignored, and a directory that cannot be written is an error
// before any number is handed out.
func TestLeftoversAndReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName+".tmp"), []byte("18"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("1900000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := Take(dir, time.Unix(1, 0), 0); err != nil || n != 1_900_000_001 {
		t.Fatalf("took %d, %v", n, err)
	}
	missing := filepath.Join(dir, "not-there")
	if n, err := Take(missing, time.Unix(1, 0), 0); err == nil {
		t.Fatalf("took %d in a directory that does not exist", n)
	}
}

// SHARD-20.3: one flipped bit of the file is refused with what to do, or is no other number.
func TestEveryFlippedBit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	if _, err := Take(dir, time.Unix(1_800_000_000, 0), 0); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(whole) * 8 {
		damaged := []byte(string(whole))
		damaged[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := Take(dir, time.Unix(1, 0), 0); !errors.Is(err, ErrUnreadable) {
			t.Errorf("bit %d of byte %d: %q was read, and epoch %d taken, %v", bit%8, bit/8, damaged, n, err)
		}
	}
}
