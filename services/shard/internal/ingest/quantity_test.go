package ingest

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"testing"

	"gopkg.in/inf.v0"
	kube "k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
)

// qty is the pattern of WIRE-3.11, which the generated rules check before any parser runs.
var qty = regexp.MustCompile(`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?([0-9]{1,3})))?$`)

// WIRE-3.11: the parser of apimachinery has the last word on what a quantity is; ours agrees with it, on what is
// accepted and on the value.
func FuzzQuantityAgreesWithApimachinery(f *testing.F) {
	for _, s := range []string{"0", "1", "250m", "4Gi", "17k", "999999999999999", "1Ti", "9223372036854775807", "1.5", "12x",
		"", "one", "1 Gi", "--1", "1e1.5", "+2", "-3", ".5", "5.", "1u", "1n", "1E", "1e3", "1E3", "0.0005", "8Ei", "1e-9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 40 || !qty.MatchString(s) {
			return // also: exponents that apimachinery computes for minutes
		}
		q, kubeErr := kube.ParseQuantity(s)
		ours, err := quantity.Parse(s, quantity.Up)
		if (kubeErr == nil) != (err == nil || errors.Is(err, quantity.ErrRange)) {
			t.Fatalf("%q: apimachinery says %v, we say %v", s, kubeErr, err)
		}
		if kubeErr != nil || err != nil {
			return
		}
		want := new(inf.Dec).Round(q.AsDec(), 3, inf.RoundCeil).UnscaledBig()
		// apimachinery rounds to nano-units first, so the two may differ by one milli-unit at most, upward.
		got := new(big.Int).Sub(want, big.NewInt(ours))
		if want.IsInt64() && want.Int64() != math.MaxInt64 && got.CmpAbs(big.NewInt(1)) > 0 {
			t.Fatalf("%q is %d, apimachinery says %v", s, ours, want)
		}
	})
}

// ENG-3.2: every decimal is its exact value, rounded as asked.
func TestParseIsExact(t *testing.T) {
	suffixes := map[string]*big.Rat{"": big.NewRat(1, 1), "m": big.NewRat(1, 1000), "u": big.NewRat(1, 1_000_000), "k": big.NewRat(1000, 1),
		"n": big.NewRat(1, 1_000_000_000), "M": big.NewRat(1_000_000, 1), "Ki": big.NewRat(1024, 1), "Mi": big.NewRat(1<<20, 1)}
	names := []string{"", "m", "u", "n", "k", "M", "Ki", "Mi"}
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		number := fmt.Sprintf("%d.%0*d", r.IntN(100_000), 1+r.IntN(9), r.IntN(10))
		name := names[r.IntN(len(names))]
		exact, _ := new(big.Rat).SetString(number)
		exact.Mul(exact, suffixes[name]).Mul(exact, big.NewRat(1000, 1))
		floor := new(big.Int).Quo(exact.Num(), exact.Denom())
		ceil := new(big.Int).Set(floor)
		if !exact.IsInt() {
			ceil.Add(ceil, big.NewInt(1))
		}
		up, err := quantity.Parse(number+name, quantity.Up)
		down, err2 := quantity.Parse(number+name, quantity.Down)
		if err != nil || err2 != nil || up != ceil.Int64() || down != floor.Int64() {
			rt.Fatalf("%s%s: %d and %d (%v, %v), want %s and %s", number, name, up, down, err, err2, ceil, floor)
		}
	})
}

// WIRE-14: what is written is read back as the same amount, by us and by apimachinery, and Sign agrees with both.
func TestFormattedQuantitiesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(t, "milli") >> rapid.IntRange(0, 62).Draw(t, "shift")
		if rapid.Bool().Draw(t, "binary") {
			milli = milli >> 12 << 10 / 1000 * 1000
		}
		name := rapid.SampledFrom([]string{"cpu", "memory", "hugepages-1Gi", "nvidia.com/gpu"}).Draw(t, "resource")
		text := quantity.Format(name, milli)
		if got, err := quantity.Parse(text, quantity.Down); err != nil || got != milli {
			t.Fatalf("%d of %s is written %q and read as %d, %v", milli, name, text, got, err)
		}
		q, err := kube.ParseQuantity(text)
		if err != nil || q.Cmp(*kube.NewMilliQuantity(milli, kube.DecimalSI)) != 0 {
			t.Fatalf("%d of %s is written %q, which apimachinery reads as %s, %v", milli, name, text, q.String(), err)
		}
		if sign, err := quantity.Sign(text); err != nil || sign != q.Sign() {
			t.Fatalf("%q: sign %d, %v", text, sign, err)
		}
		if big := quantity.FormatBig(name, big.NewInt(milli)); big != text {
			t.Fatalf("FormatBig writes %q, Format %q", big, text)
		}
	})
}
