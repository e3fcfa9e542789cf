package probe

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// sink takes results. It lives on the heap and is read by tests, so the work that fills it cannot be dropped.
type sink struct{ value uint64 }

func part(prepare, run func()) []measure.Part { return []measure.Part{{Prepare: prepare, Run: run}} }

// Scan is P-scan: the filtered minimum over three columns, 7 bytes a machine: the cheapest machine in state want of a
// class whose bit is set in classes.
func Scan(state []uint8, class []uint16, price []uint32, want uint8, classes []bool) measure.Floor {
	out := &sink{}
	return measure.Floor{Probe: "P-scan", Parts: part(nil, func() { out.value += uint64(scan(state, class, price, want, classes)) })}
}

func scan(state []uint8, class []uint16, price []uint32, want uint8, classes []bool) uint32 {
	least := ^uint32(0)
	class, price = class[:len(state)], price[:len(state)] // one bounds check instead of one for each machine
	for i, s := range state {
		if s == want && classes[class[i]] && price[i] < least {
			least = price[i]
		}
	}
	return least
}

// Sort is P-sort(n): sort n random 64-bit keys. Each sort gets a fresh copy; the copy is not timed.
func Sort(n int, seed uint64) measure.Floor {
	r := rand.New(rand.NewPCG(seed, 1))
	keys, work := make([]uint64, n), make([]uint64, n)
	for i := range keys {
		keys[i] = r.Uint64()
	}
	return sortOf(keys, work)
}

func sortOf(keys, work []uint64) measure.Floor {
	return measure.Floor{Probe: "P-sort", Parts: part(func() { copy(work, keys) }, func() { slices.Sort(work) })}
}

// Claim is P-claim: walk needs in order over pools of machines sorted by cost, take claims machines each from the
// pool of the need, and write the owner column. A pool that is used up begins again.
func Claim(needs, claims, machines, pools int, seed uint64) measure.Floor {
	r := rand.New(rand.NewPCG(seed, 2))
	order := r.Perm(machines)
	pool := make([][]uint32, pools)
	for n, i := range order {
		pool[n%pools] = append(pool[n%pools], uint32(i))
	}
	of := make([]uint16, needs)
	for i := range of {
		of[i] = uint16(r.IntN(pools))
	}
	owner, cursor := make([]int32, machines), make([]int, pools)
	return measure.Floor{Probe: "P-claim", Parts: part(func() {
		for i := range owner {
			owner[i] = -1
		}
		clear(cursor)
	}, func() { claim(of, pool, cursor, owner, claims) })}
}

func claim(of []uint16, pool [][]uint32, cursor []int, owner []int32, claims int) {
	for need, p := range of {
		list, at := pool[p], cursor[p]
		for range claims {
			if at == len(list) {
				at = 0
			}
			owner[list[at]] = int32(need)
			at++
		}
		cursor[p] = at
	}
}

// Domain is P-domain: count free units per rack and profile. units[p][c] is how many units of profile p a machine of
// class c hosts.
func Domain(rack []uint16, class []uint8, units [][]int32, racks int) measure.Floor {
	counts := make([]int32, len(units)*racks)
	return measure.Floor{Probe: "P-domain", Parts: part(nil, func() {
		clear(counts)
		for p, of := range units {
			into := counts[p*racks : (p+1)*racks]
			for i, r := range rack {
				into[r] += of[class[i]]
			}
		}
	})}
}

// copyBytes is what P-copy moves: three columns of 500,000 machines of 16 bytes.
const copyBytes = 24_000_000

// Copy is P-copy: copy 24 MB between two buffers that were both written before. Memory that was never written is one
// shared zero page and looks several times too fast.
func Copy() measure.Floor {
	from, to := make([]byte, copyBytes), make([]byte, copyBytes)
	for i := range from {
		from[i], to[i] = byte(i), byte(i>>8)
	}
	return measure.Floor{Probe: "P-copy", Parts: part(nil, func() { copy(to, from) })}
}

// Unmarshal is P-unmarshal: bare proto.Unmarshal of messages, each into a new one.
func Unmarshal(encoded [][]byte, message func() proto.Message) measure.Floor {
	out := &sink{}
	return measure.Floor{Probe: "P-unmarshal", Parts: part(nil, func() {
		for _, data := range encoded {
			if proto.Unmarshal(data, message()) != nil {
				panic("probe: a message does not decode")
			}
			out.value++
		}
	})}
}

// Marshal is P-marshal: bare proto.Marshal of one message.
func Marshal(message proto.Message) measure.Floor {
	out := &sink{}
	return measure.Floor{Probe: "P-marshal", Parts: part(nil, func() {
		data, err := proto.Marshal(message)
		if err != nil {
			panic("probe: a message does not encode")
		}
		out.value += uint64(len(data))
	})}
}

// hashBytes is the size of the key of a CapacityRequest that decides its row.
const hashBytes = 120

// Hash is P-hash: for each of n rows hash 120 bytes and add three integers to the sums of its bucket.
func Hash(n int, seed uint64) measure.Floor {
	r := rand.New(rand.NewPCG(seed, 3))
	rows := make([]byte, n*hashBytes)
	for i := range rows {
		rows[i] = byte(r.Uint32())
	}
	const buckets = 512 // a power of two above the rows of a roll-up of the programme
	sums := make([][3]int64, buckets)
	hashSeed := maphash.MakeSeed()
	return measure.Floor{Probe: "P-hash", Parts: part(nil, func() {
		for i := range n {
			at := &sums[maphash.Bytes(hashSeed, rows[i*hashBytes:(i+1)*hashBytes])%buckets]
			at[0]++
			at[1] += int64(i)
			at[2] += int64(n)
		}
	})}
}

// flatRecord is P-flat's record: 48 bytes without pointers.
type flatRecord [48]byte

// FlatBytes is P-flat: the live bytes per machine of a record without pointers and the ids in one arena.
func FlatBytes(ids []string) float64 {
	live := measure.Live(func() any {
		type flat struct {
			records []flatRecord
			arena   []byte
		}
		size := 0
		for _, id := range ids {
			size += len(id)
		}
		f := &flat{records: make([]flatRecord, len(ids)), arena: make([]byte, 0, size)}
		for i, id := range ids {
			f.records[i][0] = byte(i)
			f.arena = append(f.arena, id...)
		}
		return f
	})
	return float64(live) / float64(len(ids))
}
