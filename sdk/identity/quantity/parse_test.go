package quantity

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

// ENG-3.2: quantities are parsed once, demand rounded up to a milli-unit and supply down.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		text     string
		up, down int64
	}{
		{"1", 1000, 1000}, {"0", 0, 0}, {"1500m", 1500, 1500}, {"1.5", 1500, 1500}, {"0.0001", 1, 0}, {"1u", 1, 0}, {"1001u", 2, 1}, {"1n", 1, 0},
		{"1k", 1_000_000, 1_000_000}, {"2Ki", 2_048_000, 2_048_000}, {"1Gi", 1 << 30 * 1000, 1 << 30 * 1000}, {"1e3", 1_000_000, 1_000_000},
		{"1E2", 100_000, 100_000}, {"3E-3", 3, 3}, {"100Ei", math.MaxInt64, math.MaxInt64}, {"+2", 2000, 2000}, {".5", 500, 500}, {"5.", 5000, 5000},
	} {
		up, err := Parse(c.text, Up)
		down, err2 := Parse(c.text, Down)
		if saturated := c.up == math.MaxInt64; !saturated && (err != nil || err2 != nil) || up != c.up || down != c.down {
			t.Errorf("%q: %d, %d (%v, %v), want %d, %d", c.text, up, down, err, err2, c.up, c.down)
		}
	}
	for _, text := range []string{"", "m", "1x", "--1", "1.2.3", "1 ", " 1", "0x10", "NaN", "inf", "1e", "1ee3", "Ki", "1kk"} {
		if v, err := Parse(text, Up); err == nil {
			t.Errorf("%q is %d", text, v)
		}
	}
}

// ENG-3.2: every suffix that Kubernetes knows, and what is too much for 63 bits is the most there is.
func TestEverySuffix(t *testing.T) {
	for k, suffix := range []string{"k", "M", "G", "T", "P", "E"} {
		want := int64(math.MaxInt64)
		if k < 5 {
			want = 2 * int64(math.Pow10(3*(k+2)))
		}
		if got, err := Parse("2"+suffix, Down); got != want || err != nil != (k == 5) {
			t.Errorf("2%s is %d (%v), not %d", suffix, got, err, want)
		}
	}
	for k, suffix := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		want := int64(math.MaxInt64)
		if k < 5 {
			want = 3 << (10 * (k + 1)) * 1000
		}
		if got, err := Parse("3"+suffix, Up); got != want || err != nil != (k == 5) {
			t.Errorf("3%s is %d (%v), not %d", suffix, got, err, want)
		}
	}
	if got, err := Parse("-8Ei", Up); got != math.MinInt64 || err == nil {
		t.Errorf("-8Ei is %d (%v)", got, err)
	}
	if got, err := Parse("-0.5", Up); got != -500 || err != nil {
		t.Errorf("-0.5 is %d (%v)", got, err)
	}
}

// WIRE-14: amounts are written in the unit that people use for the resource. Only bytes have binary suffixes.
func TestFormat(t *testing.T) {
	for _, c := range []struct {
		resource    string
		milli       int64
		text, human string
	}{
		{"cpu", 0, "0", "0"}, {"cpu", 1500, "1500m", "1.5"}, {"cpu", 4000, "4", "4"}, {"cpu", 1024_000, "1024", "1024"}, {"pods", 2048_000, "2048", "2048"},
		{"memory", 16 << 30 * 1000, "16Gi", "16Gi"}, {"memory", 1000_000, "1000", "1000"}, {"hugepages-2Mi", 1 << 20 * 1000, "1Mi", "1Mi"},
		{"ephemeral-storage", 1536 << 10 * 1000, "1536Ki", "1536Ki"}, {"memory", 1, "1m", "0.001"}, {"cpu", -2000, "-2", "-2"}, {"memory", -1024_000, "-1Ki", "-1Ki"},
	} {
		if text, human := Format(c.resource, c.milli), Human(c.resource, c.milli); text != c.text || human != c.human {
			t.Errorf("%d of %s: %q and %q, want %q and %q", c.milli, c.resource, text, human, c.text, c.human)
		}
	}
	many := new(big.Int).Mul(big.NewInt(math.MaxInt64), big.NewInt(1<<10*1000))
	for resource, want := range map[string]string{"cpu": "9444732965739290426368", "memory": "9223372036854775807Ki"} {
		if resource == "cpu" {
			want = new(big.Int).Quo(many, big.NewInt(1000)).String()
		}
		if got := FormatBig(resource, many); got != want {
			t.Errorf("%s: %q, want %q", resource, got, want)
		}
	}
}

// FuzzParse: no text panics, and up is never below down.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1.5Gi", "1e309", "-1", "9223372036854775807", "0.000000000000000001", "1e-999999999", "99999999999999999999999Ei"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		up, err := Parse(s, Up)
		down, err2 := Parse(s, Down)
		if (err == nil) != (err2 == nil) || err == nil && (up < down || up-down > 1 && up != math.MaxInt64) {
			t.Fatalf("%q: %d up (%v), %d down (%v)", s, up, err, down, err2)
		}
	})
}

// Digits without end are refused before they are converted: a million of them took 2.5 s.
func TestLongTextsAreRefused(t *testing.T) {
	if v, err := Parse("0."+strings.Repeat("9", TextMax-2), Up); err != nil || v != 1000 {
		t.Errorf("%d, %v", v, err)
	}
	for _, text := range []string{"0." + strings.Repeat("9", TextMax-1), strings.Repeat("9", 16<<20)} {
		if _, err := Parse(text, Up); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "at most 128") {
			t.Errorf("%d characters: %v", len(text), err)
		}
	}
}
