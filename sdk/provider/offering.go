package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// Offering is quota: Count slots that look alike (PROV-15.8). The same offering gives the same machine ids, also after a
// restart and with another order of offerings.
type Offering struct {
	// Name is the key: short, unique, part of every machine id. Empty makes one from type, zone and capacity type.
	Name string
	// Count is how many machines there can be at a time.
	Count int
	Attributes
}

const (
	machineIDLengthMax = 60 // a label value and a node name are named after the id (PROV-9.1)
	indexDigits        = 8  // room for an index and a generation
	hashLength         = 8
)

var providerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Key is the offering's name in ids: Name, or one made from its attributes.
func (o Offering) Key() string {
	if o.Name != "" {
		return o.Name
	}
	class := map[CapacityType]string{BareMetal: "bm", Reserved: "rsv", OnDemand: "od", Spot: "spot"}[o.CapacityType]
	return o.InstanceType + "-" + o.Zone + "-" + class
}

// dns1123 makes a legal part of a Kubernetes object name.
func dns1123(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s), "-")
}

// shorten keeps a name within max by replacing its end with a hash of the whole.
func shorten(name, whole string, max int) string {
	if len(name) <= max {
		return name
	}
	sum := sha256.Sum256([]byte(whole))
	return strings.TrimRight(name[:max-hashLength-1], "-") + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// machineID is the id of one slot: provider, offering, index, and the generation from the second one on.
func machineID(provider, key string, index, generation int) string {
	head := provider + "-" + dns1123(key)
	tail := "-" + strconv.Itoa(index)
	if generation > 1 {
		tail += "-g" + strconv.Itoa(generation)
	}
	return shorten(head, provider+"\x00"+key, machineIDLengthMax-max(len(tail), indexDigits)) + tail
}

// ownedID is the id of a host that no offering lists.
func ownedID(provider, ref string, generation int) string {
	short := ref
	if i := strings.LastIndexByte(ref, '/'); i >= 0 && i+1 < len(ref) {
		short = ref[i+1:]
	}
	tail := ""
	if generation > 1 {
		tail = "-g" + strconv.Itoa(generation)
	}
	name := provider + "-" + dns1123(short)
	if short != ref { // another place may use the same short name
		sum := sha256.Sum256([]byte(ref))
		tail = "-" + hex.EncodeToString(sum[:])[:hashLength] + tail
	}
	return shorten(name, provider+"\x00"+ref, machineIDLengthMax-max(len(tail), indexDigits)) + tail
}

// catalogue is a checked list of offerings.
type catalogue struct {
	byKey map[string]*offered
	order []*offered
}

type offered struct {
	Offering
	key   string
	shape *lifecycle.Shape
}

// newCatalogue checks the offerings and reports everything that is wrong with them at once. b may be nil.
func newCatalogue(provider string, offerings []Offering, b Backend) (*catalogue, error) {
	estimator, _ := b.(Estimator)
	c := &catalogue{byKey: map[string]*offered{}}
	heads := map[string]string{}
	var all []error
	for _, o := range offerings {
		key := o.Key()
		if o.DrainEstimate == 0 && estimator != nil {
			o.DrainEstimate = estimator.DrainEstimate(o)
		}
		o.Attributes = cloneAttributes(o.Attributes)
		nodeDefaults(&o.Attributes)
		shape, err := lifecycle.NewShape(cloneAttributes(o.Attributes))
		if err != nil {
			all = append(all, fmt.Errorf("offering %q: %w", key, err))
			continue
		}
		if o.Count < 0 || o.Count > 9_999_999 {
			all = append(all, fmt.Errorf("offering %q: count %d must be 0 to 9999999", key, o.Count))
			continue
		}
		head := machineID(provider, key, 0, 1)
		if other, taken := heads[head]; taken {
			// PROV-9.11: machines of both would have the same ids.
			all = append(all, fmt.Errorf("offerings %q and %q give the same machine ids (%s, …): give one of them another name", other, key, head))
			continue
		}
		heads[head] = key
		one := &offered{Offering: o, key: key, shape: shape}
		c.byKey[key] = one
		c.order = append(c.order, one)
	}
	return c, errors.Join(all...)
}

// nodeDefaults adds labels that every Node has and that Pods often select by (PROV-15.11). A machine without them matches no such Pod.
func nodeDefaults(a *Attributes) {
	for key, value := range map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"} {
		if _, stated := a.Labels[key]; !stated {
			if a.Labels == nil {
				a.Labels = map[string]string{}
			}
			a.Labels[key] = value
		}
	}
}

func (c *catalogue) slots() int {
	n := 0
	for _, o := range c.order {
		n += o.Count
	}
	return n
}
