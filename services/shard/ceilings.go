package shard

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
)

// userPriorityMax is the highest priority that Kubernetes lets users give; above are those of the system.
const userPriorityMax = 1_000_000_000

// ceilings reads --cluster-priority-max and --cluster-penalty-max: each a number for all clusters, or cluster=number for one.
func ceilings(priorities, penalties []string) (session.Ceilings, error) {
	out := session.Ceilings{
		Priority: session.Ceiling[int32]{All: userPriorityMax},
		Penalty:  session.Ceiling[pb.PenaltyBucket]{All: pb.PenaltyBucket_PENALTY_BUCKET_PINNED},
	}
	return out, errors.Join(
		readCeiling("--cluster-priority-max", priorities, &out.Priority, func(text string) (int32, error) {
			n, err := strconv.ParseInt(text, 10, 32)
			return int32(n), err
		}),
		readCeiling("--cluster-penalty-max", penalties, &out.Penalty, func(text string) (pb.PenaltyBucket, error) {
			dollars, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, err
			}
			b, err := bucketOf(dollars)
			return pb.PenaltyBucket(b), err
		}))
}

func readCeiling[T any](flag string, values []string, to *session.Ceiling[T], parse func(string) (T, error)) error {
	var errs []error
	for _, v := range values {
		cluster, text, one := strings.Cut(v, "=")
		if !one {
			text = v
		}
		n, err := parse(strings.TrimSpace(text))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s %q must be a number, or cluster=number: %w", flag, v, err))
		case one && cluster == "":
			errs = append(errs, fmt.Errorf("%s %q has an empty cluster", flag, v))
		case !one:
			to.All = n
		default:
			if to.Of == nil {
				to.Of = map[string]T{}
			}
			to.Of[cluster] = n
		}
	}
	return errors.Join(errs...)
}

// bucketOf is the bucket of an amount. Penalties come in buckets: any other amount would be another one than was written.
func bucketOf(dollars float64) (demand.Bucket, error) {
	if !(dollars >= 0 && dollars <= 1<<33) {
		return 0, errors.New("it must be between 0 and 2^33 dollars")
	}
	above := demand.BucketOf(demand.Penalty(math.Ceil(2 * dollars)))
	if float64(above.Penalty()) == 2*dollars {
		return above, nil
	}
	inDollars := func(b demand.Bucket) string { return strconv.FormatFloat(float64(b.Penalty())/2, 'f', -1, 64) }
	return 0, fmt.Errorf("penalties come in steps of 0, 0.5, 1, 2, 4 and so on: give %s or %s", inDollars(above-1), inDollars(above))
}
