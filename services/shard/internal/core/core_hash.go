package core

// hash64 is FNV-1a with a final mix. It makes jitter, ids and digests; it protects nothing, so it need not resist an
// attacker, only be equal everywhere.
type hash64 uint64

func newHash() hash64 { return 14695981039346656037 }

func (h hash64) byte(b byte) hash64 { return (h ^ hash64(b)) * 1099511628211 }

func (h hash64) u64(v uint64) hash64 {
	for range 8 {
		h = h.byte(byte(v))
		v >>= 8
	}
	return h
}

func (h hash64) i64(v int64) hash64 { return h.u64(uint64(v)) }

func (h hash64) bool(v bool) hash64 {
	if v {
		return h.byte(1)
	}
	return h.byte(0)
}

// str hashes the length too, so that two strings in a row cannot be split differently.
func (h hash64) str(s string) hash64 {
	h = h.u64(uint64(len(s)))
	for i := range len(s) {
		h = h.byte(s[i])
	}
	return h
}

func (h hash64) sum() uint64 {
	x := uint64(h)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

const hexDigits = "0123456789abcdef"

// hex16 writes 16 lower-case digits, the form of every id that crosses the wire (SHARD-4.4).
func hex16(v uint64) string {
	var b [16]byte
	for i := range b {
		b[15-i] = hexDigits[v&15]
		v >>= 4
	}
	return string(b[:])
}

func (h hash64) bytes(b []byte) hash64 {
	h = h.u64(uint64(len(b)))
	for _, x := range b {
		h = h.byte(x)
	}
	return h
}
