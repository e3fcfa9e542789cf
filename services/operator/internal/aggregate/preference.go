package aggregate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

const (
	preferencePrefix = "l1-" // of the preferences of rows; part of the group
	weightMax        = 100
)

// preferences gives the canonical preferences of a request, largest weights first (OP-5.29). One that cannot be read does not count, and the
// warning says why: it keeps no Pod from running.
func preferences(in []corev1.PreferredSchedulingTerm) (out []*pb.NodePreference, warning *Problem) {
	for i, p := range in {
		field := entry{"spec.preferences", i}
		list, why := requirements(p.Preference.MatchExpressions)
		switch {
		case why != nil:
			warning = &Problem{Reason: ReasonPreference, Message: field.of("") + " does not count: " + why.Message}
		case len(p.Preference.MatchFields) > 0:
			warning = &Problem{Reason: ReasonPreference, Message: field.of(".preference.matchFields") + " does not count: preferences are about labels"}
		case len(list) > preferenceTermsMax:
			warning = &Problem{Reason: ReasonPreference, Message: field.of("") + " does not count: it has too many requirements"}
		case len(list) > 0: // without any it says nothing
			out = append(out, &pb.NodePreference{Weight: min(max(1, p.Weight), weightMax), Requirements: list})
		}
	}
	slices.SortFunc(out, func(a, b *pb.NodePreference) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), slices.CompareFunc(a.Requirements, b.Requirements, compareRequirements))
	})
	return out[:min(len(out), preferencesMax)], warning
}

// preferenceGroup keeps rows apart that differ in preferences alone, also at a shard that does not know these; "" if there are none.
func preferenceGroup(list []*pb.NodePreference) string {
	if len(list) == 0 {
		return ""
	}
	h := sha256.Sum256(canonicalBytes(nil, &pb.CapacityNeed{Preferences: list}))
	return preferencePrefix + hex.EncodeToString(h[:16])
}
