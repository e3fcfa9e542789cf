package shard

import (
	"os"
	"strings"
	"testing"
)

// docs/security.md says what the code does.
func TestLimitsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{}
	c.defaults()
	for row, want := range map[string]bool{
		"| 64 MiB, 10,000 | outbox of 32 MiB or 1,024 frames each":   FrameBytesMax == 64<<20 && c.SessionsMax == 10_000 && OutboxBytes == 32<<20 && OutboxEssentialFrames == 1024,
		"| reads × streams of a shard | 8 and 128,":                  ReadsMax == 8 && ReadStreamsMax == 128,
		"| 64 KiB without metadata, `--max-machines` 2,000,000 |":    c.MachinesMax == 2_000_000,
		"| rows × machines of a plan | 50,000 × 500,000 |":           c.RollupNeedsMax == 50_000,
		"| 50,000 × 40 × 16 MiB × 50,000 × 1,024 × 64; 1,024 × 63 ×": c.RollupNeedsMax == 50_000 && c.RollupBytesMax == 16<<20,
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the page does not say %q", row)
		} else if !want {
			t.Errorf("the page says %q, and the code another figure", row)
		}
	}
}
