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
			if err == nil && !(dollars >= 0 && dollars <= 1<<33) {
				err = errors.New("it must be from 0 to 2^33 dollars")
			}
			return pb.PenaltyBucket(largestBucket(dollars)), err
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

// largestBucket is the last bucket that costs no more than that.
func largestBucket(dollars float64) demand.Bucket {
	most := demand.Penalty(math.Floor(2 * dollars))
	b := demand.Pinned
	for b > demand.Zero && b.Penalty() > most {
		b--
	}
	return b
}
