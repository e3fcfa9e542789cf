package aggregate

import (
	"math/bits"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Bucket rounds thousandths of a dollar up to the penalty bucket that holds them: bucket n covers (n/2, n] dollars
// (OP-5.18, OP-5.19).
func Bucket(milliDollars int64) pb.PenaltyBucket {
	switch {
	case milliDollars <= 0:
		return pb.PenaltyBucket_PENALTY_BUCKET_ZERO
	case milliDollars <= 500:
		return pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR
	case milliDollars > 8_388_608_000:
		return pb.PenaltyBucket_PENALTY_BUCKET_PINNED
	}
	dollars := uint64((milliDollars + 999) / 1000)
	return pb.PenaltyBucket_PENALTY_BUCKET_1 + pb.PenaltyBucket(bits.Len64(dollars-1))
}
