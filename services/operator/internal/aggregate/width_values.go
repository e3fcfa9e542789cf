package aggregate

import (
	"maps"
	"strconv"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Limits of the values of label keys in a roll-up (SHARD-10.9). A shard counts rows with the same requirements once; all are counted here.
const (
	rollupFewValues = 1024       // of one key never count against
	rollupPairsMax  = 25_000_000 // values of all keys with more, times rows
	rollupValuesMax = 65_536     // of one key
)

// eachValue visits the values that a row names.
func eachValue(n *pb.CapacityNeed, visit func(key string, values []string)) {
	all := func(list []*pb.NodeSelectorRequirement) {
		for _, r := range list {
			if visit(r.Key, r.Values); r.GetComparison() != nil {
				visit(r.Key, []string{strconv.FormatInt(r.GetComparison().GetBound(), 10)})
			}
		}
	}
	all(n.Requirements)
	for _, p := range n.Preferences {
		all(p.Requirements)
	}
}

// mostValues returns the values that count, by key, of keys of which rows name too many: those that most requests use. It is nil if all count.
func mostValues(needs []*pb.CapacityNeed, requests func(at int) int) map[string]map[string]bool {
	count, uses := map[string]int{}, map[string]map[string]int{}
	for _, n := range needs {
		eachValue(n, func(key string, values []string) { count[key] += len(values) })
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n <= rollupFewValues })
	if len(count) == 0 {
		return nil
	}
	for i, n := range needs {
		eachValue(n, func(key string, values []string) {
			for _, v := range values {
				if count[key] == 0 {
					return
				}
				if uses[key] == nil {
					uses[key] = map[string]int{}
				}
				uses[key][v] += requests(i)
			}
		})
	}
	sum, largest := 0, 0
	maps.DeleteFunc(uses, func(_ string, values map[string]int) bool { return len(values) <= rollupFewValues })
	for _, values := range uses {
		sum, largest = sum+len(values), max(largest, len(values))
	}
	rows := min(len(needs), rollupRowsMax)
	if sum*rows <= rollupPairsMax && largest <= rollupValuesMax {
		return nil
	}
	most, out := min(max(rollupFewValues, rollupPairsMax/(rows*len(uses))), rollupValuesMax), map[string]map[string]bool{}
	for key, values := range uses {
		if counted := mostUsed(values, most); counted != nil {
			out[key] = counted
		}
	}
	return out
}

// beyondValues reports whether a row names a value that does not count.
func beyondValues(n *pb.CapacityNeed, counted map[string]map[string]bool) (beyond bool) {
	if counted == nil {
		return false
	}
	eachValue(n, func(key string, values []string) {
		for _, v := range values {
			beyond = beyond || counted[key] != nil && !counted[key][v]
		}
	})
	return beyond
}
