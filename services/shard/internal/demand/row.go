package demand

import (
	"cmp"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Row is one row of a roll-up in plain form, as the gate hands it over.
type Row struct {
	Profile     Profile             `n:"1"`
	Group       string              `n:"2"`
	Aggregate   []resource.Quantity `n:"3"`
	MinUnit     []resource.Quantity `n:"4"`
	RowID       string              `n:"5"` // the sender's own name of the row; decides nothing
	Fingerprint string              `n:"6"` // of Profile; set by Seal
}

// Seal brings the profile into canonical form and computes its fingerprint. It is the costly part of taking a row in and
// may run on any goroutine. Replace seals the rows that were not.
func (r *Row) Seal() {
	r.Profile = r.Profile.Canonical()
	r.Fingerprint = r.Profile.Fingerprint()
}

// RowKey names a row inside its cluster.
type RowKey struct {
	Fingerprint string `n:"1"`
	Group       string `n:"2"`
}

// Form is a profile that the table knows, in canonical form. Equal profiles are one Form; it is never changed.
type Form struct {
	Profile
	Fingerprint string
	ID          uint32 // dense; given to another Form when this one is forgotten, so caches keep the pointer as well
	Stripped    *Form  // the profile without Same; the Form itself if it has none
	Same        *Requirement
	Match       string // equal for Forms that match the same machines: requirements and tolerations, spelled out

	refs int32
}

// TopologyKey is the key of which values are domains for a Need, or "": Same wins over a spread (ENG-10.13).
func (f *Form) TopologyKey() string {
	switch {
	case f.Same != nil:
		return f.Same.Key
	case len(f.Spread) > 0:
		return f.Spread[0].Key
	}
	return ""
}

// Need is one row of demand (ENG-4.1).
type Need struct {
	Form      *Form
	Key       symbol.ID // row key, in Space.Keys
	Group     string
	RowID     string
	Aggregate resource.Vector
	MinUnit   resource.Vector
	Size      Size  // of the min unit
	Arrival   int64 // nanoseconds of the shard's clock; 0 is unknown and sorts last (ENG-4.8)
}

// RowKey returns the row key as strings.
func (n *Need) RowKey() RowKey { return RowKey{n.Form.Fingerprint, n.Group} }

// CompareRank orders by rank, higher first (ENG-7.1).
func CompareRank(a, b *Profile) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.Interruption, a.Interruption),
		cmp.Compare(b.Reclamation, a.Reclamation))
}

// CompareArrival orders arrivals, earlier first and unknown last.
func CompareArrival(a, b int64) int {
	if a == 0 || b == 0 {
		return cmp.Compare(b, a) // the one that is known is larger and comes first
	}
	return cmp.Compare(a, b)
}

// Size is how large a min unit is. Among Needs of one rank and arrival the large units come first, and the small ones fill
// what they leave of machines (ENG-7.2).
type Size struct{ CPU, Memory int64 }

// SizeOf returns the size of a min unit.
func SizeOf(space *symbol.Space, unit *resource.Vector) (s Size) {
	if d, ok := space.Dimensions.Find("cpu"); ok {
		s.CPU = unit.Get(d)
	}
	if d, ok := space.Dimensions.Find("memory"); ok {
		s.Memory = unit.Get(d)
	}
	return s
}

// CompareSize orders sizes, larger first.
func CompareSize(a, b Size) int {
	return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory))
}

// Hold says why a Need acquires nothing for now (ENG-18.1).
type Hold uint8

const (
	NotHeld Hold = iota
	HeldParked
	HeldOffline
	HeldBootstrapBackoff
	HeldNewCluster
	HeldPostponed // by a plan, for itself (ENG-12.11)
	HeldTooManyDomains
)

// Facts is what the core knows of a cluster beside its rows (ENG-2.5). The zero value is a cluster never heard of.
type Facts struct {
	Heard            bool  `n:"1"` // its reclaim gate is open
	SharingPerMille  int32 `n:"2"` // 1000, 500 or 0 (ENG-11.10)
	ReportsReadiness bool  `n:"3"` // its session reports nodes and has finished its first full set
	ReportingSince   int64 `n:"4"` // when it finished that set
	JoinDrained      int32 `n:"5"` // machines drained for not joining within the last join_timeout (ENG-17.4)
	JoinFailures     int32 `n:"6"` // machines drained for that in a row without a Node becoming Ready (ENG-17.6)
}
