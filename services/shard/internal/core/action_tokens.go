package core

import "math/bits"

// tokenBucket is a token bucket on Mono (SHARD-19.3). Levels are thousandths of a token, so that slow refills add up
// exactly and no floating point takes part in a decision.
type tokenBucket struct {
	Milli int64 `n:"1"` // level
	At    int64 `n:"2"` // Mono of the level
	Cap   int64 `n:"3"` // whole tokens; a bucket starts full
	Rest  int64 `n:"4"` // what the last refill left over: below window, in units of 1/window milli-tokens
	Made  bool  `n:"5"`
}

// refill brings the level up to now. Capacity follows the size of the scope: max(1, floor(f x configured)); a bucket
// that grows does not get the difference at once, one that shrinks is cut.
func (b *tokenBucket) refill(now, capacity, window int64) {
	if !b.Made {
		*b = tokenBucket{Milli: capacity * 1000, At: now, Cap: capacity, Made: true}
		return
	}
	if d := now - b.At; d > 0 {
		if d >= window { // a whole window fills any bucket
			b.Milli, b.Rest = capacity*1000, 0
		} else {
			hi, lo := bits.Mul64(uint64(d), uint64(capacity*1000))
			lo, carry := bits.Add64(lo, uint64(b.Rest), 0)
			q, r := bits.Div64(hi+carry, lo, uint64(window))
			b.Milli += int64(q)
			b.Rest = int64(r)
		}
		b.At = now
	}
	b.Cap = capacity
	if b.Milli >= capacity*1000 {
		b.Milli, b.Rest = capacity*1000, 0
	}
}

func (b *tokenBucket) has() bool { return b.Milli >= 1000 }

func (b *tokenBucket) take() { b.Milli -= 1000 }

// readyAt is when one whole token will be there, for a bucket refilled at its At.
func (b *tokenBucket) readyAt(window int64) int64 {
	if b.has() || b.Cap <= 0 {
		return b.At
	}
	need := 1000 - b.Milli
	hi, lo := bits.Mul64(uint64(need), uint64(window))
	lo, borrow := bits.Sub64(lo, uint64(b.Rest), 0)
	hi -= borrow
	q, r := bits.Div64(hi, lo, uint64(b.Cap*1000))
	if r > 0 {
		q++
	}
	return b.At + int64(q)
}

// reclaimCapacity is the size of a reclaim bucket for a scope of configured machines; perMille is f in thousandths.
func reclaimCapacity(configured int, perMille int64) int64 {
	return max(1, int64(configured)*perMille/1000)
}
