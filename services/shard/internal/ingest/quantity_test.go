package ingest

import (
	"errors"
	"math"
	"math/big"
	"regexp"
	"testing"

	"gopkg.in/inf.v0"
	kube "k8s.io/apimachinery/pkg/api/resource"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
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
		ours, err := resource.Parse(s, resource.Up)
		if (kubeErr == nil) != (err == nil || errors.Is(err, resource.ErrRange)) {
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
