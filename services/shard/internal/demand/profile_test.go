package demand

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// ENG-P18, ENG-4.5, ENG-4.6: buckets are monotone, round up, and are fixed at powers of two.
func TestBuckets(t *testing.T) {
	if Unspecified.Penalty() != 0 || Zero.Penalty() != 0 || HalfDollar.Penalty() != 1 || OneDollar.Penalty() != 2 || Pinned.Penalty() != PinnedPenalty {
		t.Error("a bucket stands for another amount")
	}
	for b := HalfDollar; b < Pinned; b++ {
		if b.Penalty() >= (b+1).Penalty() || BucketOf(b.Penalty()) != b {
			t.Errorf("bucket %d: $%v", b, b.Penalty().Dollars())
		}
		if next := BucketOf(b.Penalty() + 1); next != b+1 {
			t.Errorf("just above bucket %d comes %d", b, next)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		p, q := Penalty(rapid.Int64().Draw(rt, "p")), Penalty(rapid.Int64().Draw(rt, "q"))
		b := BucketOf(p)
		if p <= largestPenalty && b.Penalty() < p || p <= q && b > BucketOf(q) || p <= 0 && b != Zero || p > largestPenalty && b != Pinned {
			rt.Fatalf("%d half-dollars are bucket %d, %d are %d", p, b, q, BucketOf(q))
		}
	})
	for n := range 24 { // whole powers of two, in dollars
		if d := math.Pow(2, float64(n)); BucketOf(PenaltyOfDollars(d)).Penalty().Dollars() != d {
			t.Errorf("$%v is not a bucket of its own", d)
		}
	}
}

// drawProfile draws a profile whose keys and values are full of characters that a careless encoding would use.
func drawProfile(r *rand.Rand) Profile {
	words := []string{"", "a", "b", "ab", "a,b", "a=b", "a;b", "a\x00b", "\x00", ",", "=", "a|", "|a"}
	word := func() string { return words[r.IntN(len(words))] }
	p := Profile{Priority: int32(r.IntN(3) - 1), Interruption: Bucket(r.IntN(30)), Reclamation: Bucket(r.IntN(3)), TolerationsStated: r.IntN(2) == 0}
	for range r.IntN(3) {
		q := Requirement{Key: word(), Op: Operator(1 + r.IntN(5))}
		for range r.IntN(3) {
			q.Values = append(q.Values, word())
		}
		p.Requirements = append(p.Requirements, q)
	}
	for range r.IntN(4) {
		p.Spread = append(p.Spread, Spread{Key: word(), MaxSkew: int32(r.IntN(4) - 1)})
	}
	for range r.IntN(4) {
		p.Tolerations = append(p.Tolerations, Toleration{Key: word(), Op: []string{"", TolerationEqual, TolerationExists, "Other"}[r.IntN(4)],
			Value: word(), Effect: []string{"", NoSchedule, NoExecute, "Other"}[r.IntN(4)]})
	}
	for range r.IntN(3) {
		p.Preferences = append(p.Preferences, Preference{int32(r.IntN(3)), []Requirement{{Key: word(), Op: Operator(1 + r.IntN(4)), Values: []string{word()}}}})
	}
	return p
}

// ENG-P18, ENG-4.3, ENG-4.4: a fingerprint does not depend on the order of what is written down, and profiles that differ
// in canonical form never share one, whatever separators their keys and values hold.
func TestFingerprints(t *testing.T) {
	seen := map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 18))
		for range 20 {
			p := drawProfile(r)
			fp, form := p.Fingerprint(), fmt.Sprintf("%+q", fmt.Sprintf("%#v", p.Canonical()))
			if old, ok := seen[fp]; ok && old != form {
				rt.Fatalf("%s stands for\n%s\nand\n%s", fp, old, form)
			}
			seen[fp] = form
			q := p
			q.Requirements, q.Spread, q.Tolerations = shuffled(r, p.Requirements), shuffled(r, p.Spread), shuffled(r, p.Tolerations)
			q.Preferences = shuffled(r, p.Preferences)
			for i := range q.Requirements {
				values := shuffled(r, q.Requirements[i].Values)
				if len(values) > 0 {
					values = append(values, values[0])
				}
				q.Requirements[i].Values = values
			}
			if q.Fingerprint() != fp || q.Canonical().Fingerprint() != fp {
				rt.Fatalf("%+v and %+v have different fingerprints", p, q)
			}
		}
	})
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}

// ENG-4.4: the format is durable, because fingerprints are stored in machine metadata: these stay what they are for as long as the prefix
// does.
func TestFingerprintsAreDurable(t *testing.T) {
	for want, p := range map[string]Profile{
		"f1-61ea20bba501cd334e1bf7f1fb076e28": {},
		"f1-e11c70d005047ccebbce771fb9031d10": {Priority: -5, Interruption: OneDollar, Reclamation: Pinned, Requirements: []Requirement{
			{Key: "topology.kubernetes.io/zone", Op: In, Values: []string{"b", "a", "b"}}, {Key: "gpu", Op: DoesNotExist, Values: []string{"ignored"}},
			{Key: "rack", Op: Same}, {Key: "gpu", Op: NotIn, Values: []string{"old"}}}},
		"f1-bc8b7e268c387a3dace067e035c9ab2b": {Priority: 1 << 30, Spread: []Spread{{Key: "zone", MaxSkew: 2}, {Key: "rack", MaxSkew: -1}, {Key: "zone", MaxSkew: 1}, {MaxSkew: 7}}},
		"f1-4c37f239aba7b5167068e7bdef870913": {TolerationsStated: true, Tolerations: []Toleration{{Key: "b", Value: "v", Effect: NoExecute}, {Key: "a", Op: TolerationExists, Value: "ignored"},
			{Key: "b", Op: TolerationEqual, Value: "v", Effect: NoExecute}, {Key: "z", Op: "Other"}, {Key: "a", Op: TolerationExists, Effect: "Other"}}},
		"f1-e187291fb08d77f021767a32965e794a": {TolerationsStated: true},
	} {
		if got := p.Fingerprint(); got != want {
			t.Errorf("%+v has the fingerprint %s, not %s", p, got, want)
		}
	}
}

// ENG-4.3, WIRE-14.1: the canonical form, spelled out.
func TestCanonicalForm(t *testing.T) {
	p := Profile{Interruption: Unspecified, Requirements: []Requirement{{Key: "z", Op: In, Values: []string{"b", "a", "b"}}, {Key: "a", Op: Exists, Values: []string{"x"}},
		{Key: "a", Op: In, Values: []string{"y"}}, {Key: "a", Op: In, Values: []string{"x"}}},
		Spread:            []Spread{{Key: "zone", MaxSkew: 0}, {Key: "rack", MaxSkew: 3}, {Key: "rack", MaxSkew: -2}, {MaxSkew: 1}},
		TolerationsStated: true, Tolerations: []Toleration{{Key: "k", Effect: NoSchedule}, {Key: "k", Op: TolerationEqual, Effect: NoSchedule},
			{Key: "a", Op: TolerationExists, Value: "x"}, {Key: "k", Op: "In"}, {Key: "k", Effect: "Maybe"}}}
	before := fmt.Sprintf("%+v", p)
	want := Profile{Interruption: Zero, Reclamation: Zero, Requirements: []Requirement{{Key: "a", Op: In, Values: []string{"x"}}, {Key: "a", Op: In, Values: []string{"y"}},
		{Key: "a", Op: Exists}, {Key: "z", Op: In, Values: []string{"a", "b"}}},
		Spread:            []Spread{{Key: "rack", MaxSkew: 1}, {Key: "rack", MaxSkew: 3}, {Key: "zone", MaxSkew: 1}},
		TolerationsStated: true, Tolerations: []Toleration{{Key: "a", Op: TolerationExists}, {Key: "k", Op: TolerationEqual, Effect: NoSchedule}}}
	if got := p.Canonical(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("canonical:\n%+v, want\n%+v", got, want)
	}
	some := []Requirement{{Key: "a", Op: Exists}}
	liked := Profile{Preferences: []Preference{{0, some}, {Weight: 50}, {400, []Requirement{{Key: "b", Op: In, Values: []string{"y", "x", "y"}}}}, {50, []Requirement{{Key: "a", Op: Same}}}, {7, some}}}.Canonical()
	if got, want := fmt.Sprintf("%+v", liked.Preferences), fmt.Sprintf("%+v", []Preference{{100, []Requirement{{Key: "b", Op: In, Values: []string{"x", "y"}}}}, {7, some}, {1, some}}); got != want {
		t.Errorf("canonical preferences %s, want %s", got, want)
	}
	if n := len((Profile{Preferences: slices.Repeat([]Preference{{1, some}}, 20)}).Canonical().Preferences); n != PreferencesMax {
		t.Errorf("%d preferences are kept", n)
	}
	if after := fmt.Sprintf("%+v", p); after != before {
		t.Errorf("the profile itself was changed: %s", after)
	}
}

// FuzzFingerprint looks for two profiles that share a fingerprint because of how fields are joined.
func FuzzFingerprint(f *testing.F) {
	f.Add("a", "b", "c", int32(1), "a", "bc", "", int32(1))
	f.Add("k", "v\x00", "", int32(0), "k\x00", "v", "", int32(0))
	f.Fuzz(func(t *testing.T, k1, v1, w1 string, p1 int32, k2, v2, w2 string, p2 int32) {
		a := Profile{Requirements: []Requirement{{Key: k1, Op: In, Values: []string{v1, w1}}}, Priority: p1}
		b := Profile{Requirements: []Requirement{{Key: k2, Op: In, Values: []string{v2, w2}}}, Priority: p2}
		same := fmt.Sprintf("%#v", a.Canonical()) == fmt.Sprintf("%#v", b.Canonical())
		if (a.Fingerprint() == b.Fingerprint()) != same {
			t.Fatalf("%+v and %+v: equal %v, fingerprints %s and %s", a, b, same, a.Fingerprint(), b.Fingerprint())
		}
	})
}
