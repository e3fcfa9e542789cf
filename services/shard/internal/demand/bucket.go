package demand

import "math"

// Bucket is a penalty class, numbered as on the wire: 0 is unspecified and means $0, 27 is Pinned (ENG-4.5).
type Bucket uint8

// The buckets with a name of their own. Between HalfDollar and Pinned, bucket 3+n is 2^n dollars, up to 2^23.
const (
	Unspecified Bucket = 0
	Zero        Bucket = 1
	HalfDollar  Bucket = 2
	OneDollar   Bucket = 3
	Pinned      Bucket = 27
)

// Penalty is an amount of money in whole half-dollars (ENG-3.4).
type Penalty int64

// PinnedPenalty is what Pinned costs: 2^33 dollars. It is a number, because infinity times a probability of zero is
// none (ENG-4.5).
const PinnedPenalty Penalty = 1 << 34

// largestPenalty is the amount of the last bucket below Pinned, 2^23 dollars.
const largestPenalty Penalty = 1 << 24

// Canonical replaces the two numbers that mean the same, and numbers that no bucket has, by ones that do.
func (b Bucket) Canonical() Bucket {
	switch {
	case b == Unspecified:
		return Zero
	case b > Pinned:
		return Pinned
	}
	return b
}

// Penalty is the amount the bucket stands for.
func (b Bucket) Penalty() Penalty {
	switch b = b.Canonical(); {
	case b == Zero:
		return 0
	case b == Pinned:
		return PinnedPenalty
	}
	return 1 << (b - HalfDollar)
}

// BucketOf is the smallest bucket whose amount is at least p (ENG-4.6).
func BucketOf(p Penalty) Bucket {
	if p <= 0 {
		return Zero
	}
	for b := HalfDollar; b < Pinned; b++ {
		if b.Penalty() >= p {
			return b
		}
	}
	return Pinned
}

// PenaltyOfDollars reads a penalty that was written down in dollars, for example as an attribution in machine metadata. It
// rounds up to half-dollars; not-a-number and amounts below zero are 0; above 2^23 dollars it is Pinned (ENG-4.5).
func PenaltyOfDollars(dollars float64) Penalty {
	if !(dollars > 0) { // also false for not-a-number
		return 0
	}
	if dollars > float64(largestPenalty)/2 {
		return PinnedPenalty
	}
	return Penalty(math.Ceil(dollars * 2))
}

// Dollars is the amount in dollars. It is exact.
func (p Penalty) Dollars() float64 { return float64(p) / 2 }
