package workload

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"hash/fnv"
	"math/rand/v2"
)

// Stream returns the random numbers of one purpose under one seed.
func Stream(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// parts cuts 0..n-1 in random order into pieces of the given shares; the last piece takes the rest.
func parts(r *rand.Rand, n int, shares ...float64) [][]int {
	order := r.Perm(n)
	var out [][]int
	for _, share := range shares {
		k := min(int(share*float64(n)+0.5), len(order))
		out = append(out, order[:k])
		order = order[k:]
	}
	return append(out, order)
}

// digest hashes columns. Numbers are written at fixed width, strings with their length.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) numbers(columns ...any) {
	for _, column := range columns {
		if err := binary.Write(d.Hash, binary.LittleEndian, column); err != nil {
			panic("workload: a column without fixed width: " + err.Error())
		}
	}
}

func (d digest) strings(columns ...[]string) {
	for _, column := range columns {
		for _, s := range column {
			d.numbers(uint32(len(s)))
			_, _ = d.Write([]byte(s))
		}
	}
}

func (d digest) hex() string { return hex.EncodeToString(d.Sum(nil)) }
