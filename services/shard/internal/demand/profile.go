package demand

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Operator says how the values of a requirement are compared. The numbers up to Same are those of the wire.
type Operator uint8

const (
	In           Operator = 1
	NotIn        Operator = 2
	Exists       Operator = 3
	DoesNotExist Operator = 4
	Same         Operator = 5
	Gt           Operator = 6 // Exists with a comparison on the wire
	Lt           Operator = 7
)

// Requirement is one constraint on the machines of a Need (ENG-6.2).
type Requirement struct {
	Key    string   `n:"1"`
	Op     Operator `n:"2"`
	Values []string `n:"3"`
}

// textValues is how many values of a requirement a sentence lists.
const textValues = 8

// Text spells a requirement out for people.
func (r *Requirement) Text() string {
	op := [...]string{"?", "in", "not in", "exists", "does not exist", "same", "greater than", "less than"}
	s := r.Key + " " + op[min(int(r.Op), len(op)-1)]
	if n := len(r.Values); n > textValues {
		s += fmt.Sprintf(" (%s and %d more)", strings.Join(r.Values[:textValues], ", "), n-textValues)
	} else if n > 0 {
		s += " (" + strings.Join(r.Values, ", ") + ")"
	}
	return s
}

// Spread is one hard topology spread constraint. Soft ones are dropped before a profile is made (ENG-4.2).
type Spread struct {
	Key        string `n:"1"`
	MaxSkew    int32  `n:"2"`
	MinDomains int32  `n:"3"` // with fewer domains, none of them may hold more than the skew; 0: any number will do
}

// Toleration is one toleration with the rules of kube-scheduler (ENG-6.3a). An empty Op means Equal.
type Toleration struct {
	Key    string `n:"1"`
	Op     string `n:"2"`
	Value  string `n:"3"`
	Effect string `n:"4"`
}

// The words of tolerations and taints that mean something.
const (
	TolerationEqual  = "Equal"
	TolerationExists = "Exists"
	NoSchedule       = "NoSchedule"
	PreferNoSchedule = "PreferNoSchedule"
	NoExecute        = "NoExecute"
)

// Profile is what all capacity of a Need has in common (ENG-4.2).
type Profile struct {
	Requirements      []Requirement `n:"1"`
	Spread            []Spread      `n:"2"`
	Tolerations       []Toleration  `n:"3"`
	TolerationsStated bool          `n:"4"` // false: tolerates every taint
	Priority          int32         `n:"5"`
	Interruption      Bucket        `n:"6"`
	Reclamation       Bucket        `n:"7"`
	NeverPreempts     bool          `n:"8"`  // nothing in use is preempted for it (ENG-15.6)
	MaxPerHost        int32         `n:"9"`  // units that one machine may hold; 0: as many as fit (ENG-4.12a)
	MinMembers        int32         `n:"10"` // units that run together or not at all; 0: each for itself (ENG-4.13)
	Preferences       []Preference  `n:"11"` // which machines are better of those that cost the same (ENG-7.4a)
}

// Canonical returns the one spelling of a profile (ENG-4.3). It reads soft violations as WIRE-14.1 says: values of
// Exists and DoesNotExist are ignored, a skew below 1 is 1, a spread without key and a toleration with an unknown
// operator or effect are left out. It does not change p.
func (p Profile) Canonical() Profile {
	c := p
	c.Requirements = canonicalRequirements(p.Requirements)
	c.Spread = make([]Spread, 0, len(p.Spread))
	for _, s := range p.Spread {
		if s.Key == "" {
			continue
		}
		s.MaxSkew = max(s.MaxSkew, 1)
		if s.MinDomains <= 1 { // one domain is always there
			s.MinDomains = 0
		}
		c.Spread = append(c.Spread, s)
	}
	slices.SortFunc(c.Spread, func(a, b Spread) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.MaxSkew, b.MaxSkew), cmp.Compare(b.MinDomains, a.MinDomains))
	})
	c.Tolerations = canonicalTolerations(p)
	c.Interruption, c.Reclamation = p.Interruption.Canonical(), p.Reclamation.Canonical()
	c.MaxPerHost, c.MinMembers = max(0, p.MaxPerHost), max(0, p.MinMembers)
	c.Preferences = canonicalPreferences(p.Preferences)
	return c
}

func canonicalRequirements(in []Requirement) []Requirement {
	out := make([]Requirement, 0, len(in))
	for _, r := range in {
		switch r.Op {
		case Exists, DoesNotExist:
			r.Values = nil
		default:
			r.Values = sortedSet(r.Values)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, compareRequirements)
	return out
}

func sortedSet(values []string) []string {
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}

func compareRequirements(a, b Requirement) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Op, b.Op), slices.Compare(a.Values, b.Values))
}

func compareTolerations(a, b Toleration) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Op, b.Op), strings.Compare(a.Value, b.Value),
		strings.Compare(a.Effect, b.Effect))
}

func canonicalTolerations(p Profile) []Toleration {
	if !p.TolerationsStated {
		return nil
	}
	out := make([]Toleration, 0, len(p.Tolerations))
	for _, t := range p.Tolerations {
		switch t.Op {
		case "", TolerationEqual:
			t.Op = TolerationEqual
		case TolerationExists:
			t.Value = ""
		default:
			continue
		}
		switch t.Effect {
		case "", NoSchedule, PreferNoSchedule, NoExecute:
			out = append(out, t)
		}
	}
	slices.SortFunc(out, compareTolerations)
	return slices.Compact(out)
}

// SameKey returns the requirement that asks for one shared value, if there is one. Of several, which the gate refuses,
// the first in canonical order counts (ENG-4.10).
func (p *Profile) SameKey() (Requirement, bool) {
	for _, r := range p.Requirements {
		if r.Op == Same {
			return r, true
		}
	}
	return Requirement{}, false
}

// WithoutSame returns the profile without its Same requirements, which is what folding (ENG-8.3) and capacity hints use.
func (p Profile) WithoutSame() Profile {
	p.Requirements = slices.DeleteFunc(slices.Clone(p.Requirements), func(r Requirement) bool { return r.Op == Same })
	return p
}

// FingerprintPrefix marks fingerprints of the format of this version. Attributions with another one are not ours (ENG-5.6).
const FingerprintPrefix = "f1-"

// Fingerprint names a profile: "f1-" and the first 32 hex digits of SHA-256 over its canonical form (ENG-4.4). The form
// is durable, because fingerprints are stored in machine metadata.
//
// The bytes hashed are a sequence of fields, each with its length as four bytes, most significant first, before it. A
// number is a field of four bytes. In order: the number of requirements, and of each one its key, operator, number of
// values and values; the number of spread terms, and of each one its key, its skew, and "min-domains" and the number if it has one; 1 or 0 for tolerations stated, the
// number of tolerations, and of each one its key, operator, value and effect; priority; both buckets; "never-preempts" if it never
// preempts; "max-per-host" and the number if it has such a limit; "min-members" and the number if it is such a gang; if it has preferences,
// "preferences", their number, and of each one its weight and its requirements as above.
func (p Profile) Fingerprint() string {
	c := p.Canonical()
	b := appendRequirements(make([]byte, 0, 256), c.Requirements)
	b = appendNumber(b, len(c.Spread))
	for _, s := range c.Spread {
		b = appendField(b, s.Key)
		b = appendNumber(b, int(s.MaxSkew))
		if s.MinDomains > 0 {
			b = appendNumber(appendField(b, "min-domains"), int(s.MinDomains))
		}
	}
	b = c.appendTolerations(b)
	b = appendNumber(b, int(c.Priority))
	b = appendNumber(b, int(c.Interruption))
	b = appendNumber(b, int(c.Reclamation))
	if c.NeverPreempts { // profiles without it keep the fingerprint that they always had
		b = appendField(b, "never-preempts")
	}
	if c.MaxPerHost > 0 {
		b = appendNumber(appendField(b, "max-per-host"), int(c.MaxPerHost))
	}
	if c.MinMembers > 0 {
		b = appendNumber(appendField(b, "min-members"), int(c.MinMembers))
	}
	b = c.appendPreferences(b)
	return FingerprintPrefix + shortHash(b)
}

func appendRequirements(b []byte, list []Requirement) []byte {
	b = appendNumber(b, len(list))
	for _, r := range list {
		b = appendField(b, r.Key)
		b = appendNumber(b, int(r.Op))
		b = appendNumber(b, len(r.Values))
		for _, v := range r.Values {
			b = appendField(b, v)
		}
	}
	return b
}

func (p *Profile) appendTolerations(b []byte) []byte {
	stated := 0
	if p.TolerationsStated {
		stated = 1
	}
	b = appendNumber(b, stated)
	b = appendNumber(b, len(p.Tolerations))
	for _, t := range p.Tolerations {
		b = appendField(b, t.Key)
		b = appendField(b, t.Op)
		b = appendField(b, t.Value)
		b = appendField(b, t.Effect)
	}
	return b
}

// appendMatch spells out what decides which machines match a profile in canonical form, and how well.
func (p *Profile) appendMatch(b []byte) []byte {
	return p.appendPreferences(p.appendTolerations(appendRequirements(b, p.Requirements)))
}

func appendField(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendNumber(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(int32(n)))
}

func shortHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// FoldGroup is the group of a folded Need (ENG-8.3): "fold1-" and the first 32 hex digits of SHA-256 over one member's
// aggregate: the number of resources, and of each one, by name, its name and its amount in decimal, as in Fingerprint.
func FoldGroup(space *symbol.Space, aggregate *resource.Vector) string {
	list := aggregate.Quantities(space.Dimensions)
	b := appendNumber(make([]byte, 0, 128), len(list))
	for _, q := range list {
		b = appendField(b, q.Name)
		b = appendField(b, strconv.FormatInt(q.Milli, 10))
	}
	return "fold1-" + shortHash(b)
}
