package inventory

import (
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// AttributionRow is an attribution in numbers, as plans read it.
type AttributionRow struct {
	Key          symbol.ID // row key, in Space.Keys
	Ours         bool      // written in our fingerprint format
	Priority     int32
	Interruption demand.Penalty
	Reclamation  demand.Penalty
}

// attributionTable holds each distinct attribution once. Number 0 is no attribution.
type attributionTable struct {
	index hashIndex
	all   []AttributionRow
	refs  []int32
	free  []uint32
}

func newAttributionTable() attributionTable {
	return attributionTable{all: []AttributionRow{{}}, refs: []int32{0}}
}

func (t *attributionTable) intern(space *symbol.Space, s *Attribution) uint32 {
	r := AttributionRow{Key: space.Keys.Intern(s.Fingerprint, s.Group), Ours: s.Ours(), Priority: s.Priority, Interruption: s.Interruption,
		Reclamation: s.Reclamation}
	h := r.hash()
	id, ok := t.index.find(h, func(id uint32) bool { return t.all[id] == r })
	if ok {
		space.Keys.Release(r.Key)
		t.refs[id]++
		return id
	}
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
		t.all[id], t.refs[id] = r, 1
	} else {
		id = uint32(len(t.all))
		t.all, t.refs = append(grow(t.all), r), append(grow(t.refs), 1)
	}
	t.index.insert(h, id, t.hash)
	return id
}

func (t *attributionTable) release(space *symbol.Space, id uint32) {
	if id == 0 {
		return
	}
	if t.refs[id]--; t.refs[id] > 0 {
		return
	}
	space.Keys.Release(t.all[id].Key)
	t.index.remove(t.hash(id), id, t.hash)
	t.all[id] = AttributionRow{}
	t.free = append(t.free, id)
}

func (t *attributionTable) hash(id uint32) uint64 { return t.all[id].hash() }

func (r *AttributionRow) hash() uint64 {
	return hashNumbers(uint64(r.Key), uint64(uint32(r.Priority)), uint64(r.Interruption), uint64(r.Reclamation))
}

func (t *attributionTable) clone() attributionTable {
	return attributionTable{index: t.index.clone(), all: slices.Clone(t.all), refs: slices.Clone(t.refs), free: slices.Clone(t.free)}
}

// internLabels returns the set of a list of labels, sorted by key, and adds one user.
func (t *Table) internLabels(list []Label) uint32 {
	str := t.space.Strings
	t.words = t.words[:0]
	for _, l := range list {
		t.words = append(t.words, str.Intern(l.Key), str.Intern(l.Value))
	}
	sortPairs(t.words)
	id, isNew := t.labelSets.intern(t.words)
	if isNew {
		t.walk(t.words)
	} else {
		for _, w := range t.words {
			str.Release(w)
		}
	}
	return id
}

// sortPairs sorts key and value words by key symbol. The lists are short.
func sortPairs(w []symbol.ID) {
	for i := 2; i < len(w); i += 2 {
		for j := i; j > 0 && w[j] < w[j-2]; j -= 2 {
			w[j], w[j-2] = w[j-2], w[j]
			w[j+1], w[j-1] = w[j-1], w[j+1]
		}
	}
}

func (t *Table) releaseLabels(id uint32) {
	words := t.labelSets.release(id)
	t.walkedOut(words)
	for _, w := range words {
		t.space.Strings.Release(w)
	}
}

func (t *Table) sameLabels(i Index, list []Label) bool {
	w := t.labelSets.get(t.providerLabels(i))
	if len(w) != 2*len(list) {
		return false
	}
	for _, l := range list {
		found := false
		for k := 0; k < len(w); k += 2 {
			if t.space.Strings.Text(w[k+1]) == l.Value && t.space.Strings.Text(w[k]) == l.Key {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// The host of a machine is kept as one text: the length of the provider's part, that part, and the reference. Many providers
// call a host what they call the machine: that needs no text.
const hostIsMachine textRef = math.MaxUint32

func (t *Table) host(i Index) (provider, ref string) {
	if t.hostRef[i] == hostIsMachine {
		return t.Provider(i), t.ID(i)
	}
	s := t.hosts.text(t.hostRef[i])
	if s == "" {
		return "", ""
	}
	n := int(s[0])
	return s[1 : 1+n], s[1+n:]
}

func (t *Table) sameHost(i Index, m *Machine) bool {
	p, r := t.host(i)
	return p == m.HostProvider && r == m.HostRef
}

func (t *Table) setHost(i Index, m *Machine) {
	t.dropHost(i)
	switch {
	case m.HostRef == m.ID && m.HostProvider == m.Provider:
		t.hostRef[i] = hostIsMachine
	case m.HostProvider != "" || m.HostRef != "":
		b := append(t.scratch[:0], byte(len(m.HostProvider)))
		b = append(append(b, m.HostProvider...), m.HostRef...)
		t.hostRef[i] = t.hosts.add(string(b))
		t.scratch = b
	}
	t.compactHosts()
}

func (t *Table) dropHost(i Index) {
	if t.hostRef[i] != hostIsMachine {
		t.hosts.drop(t.hostRef[i])
	}
	t.hostRef[i] = 0
}

// compactIDs and compactHosts copy what lives to new blocks when more than half is dead.
func (t *Table) compactIDs() {
	if t.ids.wasteful() {
		t.ids = compact(t.ids, t.idRef)
	}
}

func (t *Table) compactHosts() {
	if t.hosts.wasteful() {
		t.hosts = compact(t.hosts, t.hostRef)
	}
}

func compact(old texts, refs []textRef) texts {
	var next texts
	for i, r := range refs {
		if r != 0 && r != hostIsMachine {
			refs[i] = next.add(old.text(r))
		}
	}
	return next
}
