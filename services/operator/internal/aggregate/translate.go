package aggregate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Problem says what is wrong with a request. A request with a fatal problem cannot be counted; others are counted, and
// the problem is a warning.
type Problem struct {
	Reason  string // reason of the condition Valid
	Message string // names the field
	Fatal   bool
}

func fatal(reason, field, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: field + " " + fmt.Sprintf(format, args...), Fatal: true}
}

// Reasons of the condition Valid.
const (
	ReasonValid            = "Valid"
	ReasonUnreadable       = "Unreadable"
	ReasonOperator         = "UnsupportedOperator"
	ReasonRequirement      = "InvalidRequirement"
	ReasonSpread           = "InvalidTopologySpread"
	ReasonToleration       = "InvalidToleration"
	ReasonCoLocation       = "InvalidCoLocation"
	ReasonGang             = "InvalidGang"
	ReasonResources        = "InvalidResources"
	ReasonTooManyResources = "TooManyResources"
	ReasonTooManyKeys      = "TooManyKeys"
	ReasonTooManyShapes    = "TooManyShapes"
	ReasonEmptyCoLocation  = "EmptyCoLocation"
	ReasonNegativePenalty  = "NegativePenalty"
	ReasonPreference       = "InvalidPreference"
)

// profile is the identity of a request's row: everything of a row but amounts, and the shape where that counts.
type profile struct {
	need   *pb.CapacityNeed // canonical, without amounts and row id
	id     string           // row id: hash of the identity, and for us the identity itself
	family familyID         // what the rows of other shapes with these constraints have in common; zero: shapes do not count
	size   size
	peers  string // of a spread that counts some Pods only: part of the group
	near   *Near  // nil: no term that says where
}

// familyID is the hash of constraints.
type familyID [32]byte

var operators = map[corev1.NodeSelectorOperator]pb.NodeSelectorRequirement_Operator{
	corev1.NodeSelectorOpIn:           pb.NodeSelectorRequirement_OPERATOR_IN,
	corev1.NodeSelectorOpNotIn:        pb.NodeSelectorRequirement_OPERATOR_NOT_IN,
	corev1.NodeSelectorOpExists:       pb.NodeSelectorRequirement_OPERATOR_EXISTS,
	corev1.NodeSelectorOpDoesNotExist: pb.NodeSelectorRequirement_OPERATOR_DOES_NOT_EXIST,
	corev1.NodeSelectorOpGt:           pb.NodeSelectorRequirement_OPERATOR_EXISTS, // with a comparison
	corev1.NodeSelectorOpLt:           pb.NodeSelectorRequirement_OPERATOR_EXISTS,
}

// translate gives the canonical profile of a request, or a fatal problem. A problem beside a profile is a warning.
func translate(namespace string, s *request.Spec, room *scratch) (*profile, *Problem) {
	if f := s.Fault; f != nil {
		return nil, fatal(ReasonUnreadable, f.Field, "%s", f.Message)
	}
	if len(s.Resources) > resourcesMax {
		return nil, fatal(ReasonTooManyResources, "spec.resources", "has more than %d entries", resourcesMax)
	}
	for _, a := range s.Resources {
		if a.Name == "" || len(a.Name) > keyBytesMax {
			return nil, fatal(ReasonResources, "spec.resources", "has a name of %d bytes; 1 to %d are allowed", len(a.Name), keyBytesMax)
		}
	}
	need := &pb.CapacityNeed{
		Priority:                  s.Priority,
		InterruptionPenaltyBucket: Bucket(s.InterruptionPenalty.Milli),
		ReclamationPenaltyBucket:  Bucket(s.ReclamationPenalty.Milli),
		TolerationsStated:         true,
		MaxPerHost:                s.MaxPerHost,
		NeverPreempts:             s.NeverPreempts,
	}
	var p *Problem
	if need.Requirements, p = requirements(s.Requirements); p != nil {
		return nil, p
	}
	if need.Spread, p = spread(s.Spread); p != nil {
		return nil, p
	}
	if need.Tolerations, p = tolerations(s.Tolerations); p != nil {
		return nil, p
	}
	var warning *Problem
	if s.InterruptionPenalty.Milli < 0 || s.ReclamationPenalty.Milli < 0 {
		warning = &Problem{Reason: ReasonNegativePenalty, Message: "a negative penalty counts as $0"}
	}
	if c := s.CoLocation; c != nil {
		if c.LabelSelector == nil {
			warning = &Problem{Reason: ReasonEmptyCoLocation,
				Message: "spec.coLocation.labelSelector is absent, which selects nothing: the term is ignored"}
		} else if p := join(need, namespace, c); p != nil {
			return nil, p
		}
	}
	if g := s.Gang; g != nil {
		if p := joinGang(need, namespace, g); p != nil {
			return nil, p
		}
	}
	if need.Group == "" {
		var unread *Problem
		if need.Preferences, unread = preferences(s.Preferences); warning == nil {
			warning = unread
		}
		need.Group = spreadGroup(namespace, s.Spread) + preferenceGroup(need.Preferences)
		return newShapeProfile(need, s.Resources, room), warning
	}
	out := newProfile(need, room)
	out.near = nearOf(namespace, s.CoLocation)
	return out, warning
}

// join makes the row a gang: the group's name and the one requirement that all machines share a domain (OP-5.16).
func join(need *pb.CapacityNeed, namespace string, c *v1alpha1.CoLocation) *Problem {
	if c.TopologyKey == "" || len(c.TopologyKey) > keyBytesMax {
		return fatal(ReasonCoLocation, "spec.coLocation.topologyKey", "has %d bytes; 1 to %d are allowed", len(c.TopologyKey), keyBytesMax)
	}
	need.Group = Group(namespace, c)
	need.Requirements = append(need.Requirements, &pb.NodeSelectorRequirement{
		Key: c.TopologyKey, Operator: pb.NodeSelectorRequirement_OPERATOR_SAME,
	})
	return nil
}

// joinGang makes the row a gang that is bought together or not at all (OP-5.24). A co-location term of its Pods says where; else the gang may.
func joinGang(need *pb.CapacityNeed, namespace string, g *v1alpha1.Gang) *Problem {
	switch {
	case g.Name == "" || len(g.Name) > gangNameBytesMax:
		return fatal(ReasonGang, "spec.gang.name", "has %d bytes; 1 to %d are allowed", len(g.Name), gangNameBytesMax)
	case g.MinMembers < 0:
		return fatal(ReasonGang, "spec.gang.minMembers", "is %d; at least 0 is needed", g.MinMembers)
	case len(g.TopologyKey) > keyBytesMax:
		return fatal(ReasonGang, "spec.gang.topologyKey", "has %d bytes; up to %d are allowed", len(g.TopologyKey), keyBytesMax)
	}
	if need.Group == "" && g.TopologyKey != "" {
		need.Requirements = append(need.Requirements, &pb.NodeSelectorRequirement{
			Key: g.TopologyKey, Operator: pb.NodeSelectorRequirement_OPERATOR_SAME,
		})
	}
	need.Group, need.MinMembers = gangGroup(need.Group, namespace, g.Name), g.MinMembers
	return nil
}

// entry is one entry of a list in a spec.
type entry struct {
	list string
	i    int
}

// of is the path of a part of it, as problems name it.
func (e entry) of(part string) string { return fmt.Sprintf("%s[%d]%s", e.list, e.i, part) }

// canonical sorts and removes repetitions.
func canonical[T any](list []T, compare func(a, b T) int) []T {
	slices.SortFunc(list, compare)
	return slices.CompactFunc(list, func(a, b T) bool { return compare(a, b) == 0 })
}

func compareRequirements(a, b *pb.NodeSelectorRequirement) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values),
		compareNumbers(a.Comparison, b.Comparison))
}

// compareNumbers orders comparisons; none comes first.
func compareNumbers(a, b *pb.LabelComparison) int {
	key := func(c *pb.LabelComparison) (kind int) {
		switch {
		case c == nil:
			return 0
		case c.Less:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(a.GetBound(), b.GetBound()))
}

// integer reads what a label is compared with.
func integer(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

func requirements(in []corev1.NodeSelectorRequirement) ([]*pb.NodeSelectorRequirement, *Problem) {
	out := make([]*pb.NodeSelectorRequirement, 0, len(in)+1) // and one more for a gang
	for i, r := range in {
		field := entry{"spec.requirements", i}
		op, known := operators[r.Operator]
		switch {
		case !known:
			return nil, fatal(ReasonOperator, field.of(".operator"), "%q cannot be used; In, NotIn, Exists, DoesNotExist, Gt and Lt can", r.Operator)
		case r.Key == "" || len(r.Key) > keyBytesMax:
			return nil, fatal(ReasonRequirement, field.of(".key"), "has %d bytes; 1 to %d are allowed", len(r.Key), keyBytesMax)
		case len(r.Values) > requirementValueMax:
			return nil, fatal(ReasonRequirement, field.of(".values"), "has more than %d entries", requirementValueMax)
		}
		next := &pb.NodeSelectorRequirement{Key: r.Key, Operator: op}
		if r.Operator == corev1.NodeSelectorOpGt || r.Operator == corev1.NodeSelectorOpLt {
			bound, ok := integer(r.Values)
			if !ok {
				return nil, fatal(ReasonRequirement, field.of(".values"), "is %q; %s needs exactly one integer", r.Values, r.Operator)
			}
			next.Comparison = &pb.LabelComparison{Less: r.Operator == corev1.NodeSelectorOpLt, Bound: bound}
		}
		if op == pb.NodeSelectorRequirement_OPERATOR_IN || op == pb.NodeSelectorRequirement_OPERATOR_NOT_IN {
			if len(r.Values) == 0 {
				return nil, fatal(ReasonRequirement, field.of(".values"), "is empty; %s needs at least one", r.Operator)
			}
			next.Values = canonical(slices.Clone(r.Values), strings.Compare)
			if slices.ContainsFunc(next.Values, func(v string) bool { return len(v) > valueBytesMax }) {
				return nil, fatal(ReasonRequirement, field.of(".values"), "has an entry of more than %d bytes", valueBytesMax)
			}
		}
		out = append(out, next)
	}
	out = canonical(out, compareRequirements)
	if len(out) > requirementsMax {
		return nil, fatal(ReasonRequirement, "spec.requirements", "has more than %d entries", requirementsMax)
	}
	return out, nil
}

// spread keeps the hard constraints; a soft one would only split rows (OP-5.11).
func spread(in []v1alpha1.TopologySpread) ([]*pb.TopologySpread, *Problem) {
	var out []*pb.TopologySpread
	for i, s := range in {
		field := entry{"spec.topologySpread", i}
		switch {
		case s.WhenUnsatisfiable == corev1.ScheduleAnyway:
			continue
		case s.WhenUnsatisfiable != corev1.DoNotSchedule:
			return nil, fatal(ReasonSpread, field.of(".whenUnsatisfiable"), "%q is neither DoNotSchedule nor ScheduleAnyway", s.WhenUnsatisfiable)
		case s.TopologyKey == "" || len(s.TopologyKey) > keyBytesMax:
			return nil, fatal(ReasonSpread, field.of(".topologyKey"), "has %d bytes; 1 to %d are allowed", len(s.TopologyKey), keyBytesMax)
		case s.MaxSkew < 1:
			return nil, fatal(ReasonSpread, field.of(".maxSkew"), "is %d; at least 1 is needed", s.MaxSkew)
		}
		out = append(out, &pb.TopologySpread{
			TopologyKey: s.TopologyKey, MaxSkew: s.MaxSkew, MinDomains: domains(s.MinDomains),
			WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE,
		})
	}
	out = canonical(out, func(a, b *pb.TopologySpread) int {
		return cmp.Or(strings.Compare(a.TopologyKey, b.TopologyKey), cmp.Compare(a.MaxSkew, b.MaxSkew), cmp.Compare(b.MinDomains, a.MinDomains))
	})
	if len(out) > spreadMax {
		return nil, fatal(ReasonSpread, "spec.topologySpread", "has more than %d hard entries", spreadMax)
	}
	return out, nil
}

// domains is the least number of domains as the wire says it: one is always there.
func domains(least int32) int32 {
	if least <= 1 {
		return 0
	}
	return least
}

func tolerations(in []corev1.Toleration) ([]*pb.Toleration, *Problem) {
	var out []*pb.Toleration
	for i, t := range in {
		field := entry{"spec.tolerations", i}
		next := &pb.Toleration{Key: t.Key, Operator: string(cmp.Or(t.Operator, corev1.TolerationOpEqual)), Value: t.Value, Effect: string(t.Effect)}
		switch {
		case t.Operator == corev1.TolerationOpExists:
			next.Value = ""
		case next.Operator != string(corev1.TolerationOpEqual):
			return nil, fatal(ReasonToleration, field.of(".operator"), "%q is neither Equal nor Exists", t.Operator)
		}
		if next.Effect != "" && !slices.Contains([]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}, t.Effect) {
			return nil, fatal(ReasonToleration, field.of(".effect"), "%q is not a taint effect", t.Effect)
		}
		if len(t.Key) > keyBytesMax || len(t.Value) > valueBytesMax {
			return nil, fatal(ReasonToleration, field.of(""), "is too long: key %d of %d bytes, value %d of %d", len(t.Key), keyBytesMax, len(t.Value), valueBytesMax)
		}
		out = append(out, next)
	}
	out = canonical(out, func(a, b *pb.Toleration) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Operator, b.Operator), strings.Compare(a.Value, b.Value), strings.Compare(a.Effect, b.Effect))
	})
	if len(out) > tolerationsMax {
		return nil, fatal(ReasonToleration, "spec.tolerations", "has more than %d entries", tolerationsMax)
	}
	return out, nil
}
