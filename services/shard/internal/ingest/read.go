package ingest

import (
	"fmt"
	"strconv"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// reader turns needs into rows and collects what it had to read leniently.
type reader struct {
	warnings []core.Warning
	more     map[string]bool
}

// warn notes a soft violation. Every rule is noted, but only so many lines are kept.
func (r *reader) warn(rule, format string, args ...any) {
	if len(r.warnings) >= warnings {
		if r.more[rule] {
			return
		}
		if r.more == nil {
			r.more = map[string]bool{}
		}
		r.more[rule] = true
		if len(r.warnings) >= 2*warnings {
			return
		}
	}
	r.warnings = append(r.warnings, core.Warning{Rule: rule, Text: clip(fmt.Sprintf(format, args...))})
}

func (r *reader) soft(m *pb.ClusterCapacityNeeds, size int, now time.Time) {
	switch {
	case m.TimestampUnixNanos < 0:
		r.warn("timestamp_negative", "timestamp_unix_nanos is negative")
	case m.TimestampUnixNanos > now.Add(aheadMax).UnixNano():
		r.warn("timestamp_ahead", "timestamp_unix_nanos is more than 10 minutes ahead of the shard's clock")
	}
	if size > softBytes || len(m.Needs) > softNeeds {
		r.warn("large", "%d rows in %d bytes; usual roll-ups have a few KB", len(m.Needs), size)
	}
}

func (r *reader) need(i int, n *pb.CapacityNeed) demand.Row {
	row := demand.Row{Group: n.GetGroup(), RowID: n.GetRowId()}
	p := &row.Profile
	same := false
	for _, q := range n.GetRequirements() {
		op := demand.Operator(q.GetOperator())
		switch {
		case q.GetKey() == "":
			r.warn("empty_key", "needs[%d]: a requirement has no key", i)
		case (op == demand.Exists || op == demand.DoesNotExist) && len(q.GetValues()) > 0:
			r.warn("values_on_exists", "needs[%d]: values of %s are ignored", i, q.GetKey())
		case (op == demand.In || op == demand.NotIn) && len(q.GetValues()) == 0:
			r.warn("values_missing", "needs[%d]: %s has no values", i, q.GetKey())
		case op != demand.Exists && q.GetComparison() != nil:
			r.warn("comparison", "needs[%d]: the comparison of %s is ignored, for its operator is not Exists", i, q.GetKey())
		}
		same = same || op == demand.Same
		p.Requirements = append(p.Requirements, requirement(q))
	}
	if same && row.Group == "" {
		r.warn("same_without_group", "needs[%d]: Same has no group", i)
	}
	r.spread(i, n, p)
	p.TolerationsStated, p.NeverPreempts = n.GetTolerationsStated(), n.GetNeverPreempts()
	for _, t := range n.GetTolerations() {
		p.Tolerations = append(p.Tolerations, demand.Toleration{Key: t.GetKey(), Op: t.GetOperator(), Value: t.GetValue(), Effect: t.GetEffect()})
	}
	if p.MaxPerHost = n.GetMaxPerHost(); p.MaxPerHost < 0 {
		r.warn("max_per_host", "needs[%d]: a negative max_per_host is treated as 0", i)
	}
	if p.MinMembers = n.GetMinMembers(); p.MinMembers < 0 {
		r.warn("min_members", "needs[%d]: a negative min_members is treated as 0", i)
	}
	r.preferences(i, n, p)
	p.Priority = n.GetPriority()
	p.Interruption = demand.Bucket(n.GetInterruptionPenaltyBucket())
	p.Reclamation = demand.Bucket(n.GetReclamationPenaltyBucket())
	row.Aggregate = r.quantities(i, "aggregate_resources", n.GetAggregateResources())
	row.MinUnit = r.quantities(i, "min_unit", n.GetMinUnit())
	r.minUnit(i, &row)
	return row
}

// requirement reads one of the wire: Exists with a comparison is Gt or Lt.
func requirement(q *pb.NodeSelectorRequirement) demand.Requirement {
	out := demand.Requirement{Key: q.GetKey(), Op: demand.Operator(q.GetOperator()), Values: q.GetValues()}
	if out.Op != demand.Exists || q.GetComparison() == nil {
		return out
	}
	out.Op, out.Values = demand.Gt, []string{strconv.FormatInt(q.GetComparison().GetBound(), 10)}
	if q.GetComparison().GetLess() {
		out.Op = demand.Lt
	}
	return out
}

// preferences reads those of a row; canonical form leaves out what is none (WIRE-14.1).
func (r *reader) preferences(i int, n *pb.CapacityNeed, p *demand.Profile) {
	for _, f := range n.GetPreferences() {
		next := demand.Preference{Weight: f.GetWeight()}
		same := false
		for _, q := range f.GetRequirements() {
			same = same || q.GetOperator() == pb.NodeSelectorRequirement_OPERATOR_SAME
			next.Requirements = append(next.Requirements, requirement(q))
		}
		if same || len(next.Requirements) == 0 {
			r.warn("preference", "needs[%d]: a preference without requirements, or with OPERATOR_SAME, is ignored", i)
		}
		if next.Weight < 1 || next.Weight > 100 {
			r.warn("preference_weight", "needs[%d]: the weight %d of a preference is not between 1 and 100", i, next.Weight)
		}
		p.Preferences = append(p.Preferences, next)
	}
}

func (r *reader) spread(i int, n *pb.CapacityNeed, p *demand.Profile) {
	for _, s := range n.GetSpread() {
		switch {
		case s.GetTopologyKey() == "":
			r.warn("empty_key", "needs[%d]: a spread term has no key", i)
			continue
		case s.GetWhenUnsatisfiable() != pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE:
			r.warn("soft_spread", "needs[%d]: the soft spread over %s is ignored", i, s.GetTopologyKey())
			continue
		case s.GetMaxSkew() < 1:
			r.warn("max_skew", "needs[%d]: a skew below 1 is treated as 1", i)
		}
		if s.GetMinDomains() < 0 {
			r.warn("min_domains", "needs[%d]: negative min_domains are read as 0", i)
		}
		p.Spread = append(p.Spread, demand.Spread{Key: s.GetTopologyKey(), MaxSkew: s.GetMaxSkew(), MinDomains: s.GetMinDomains()})
	}
}

// quantities reads amounts in name order. Negative ones are 0, oversized ones saturate, entries without a name are left
// out (WIRE-14.1).
func (r *reader) quantities(i int, field string, m map[string]string) []resource.Quantity {
	var out []resource.Quantity
	for _, name := range sortedNames(m) {
		v, err := quantity.Parse(m[name], quantity.Up)
		switch {
		case name == "":
			r.warn("empty_key", "needs[%d]: %s has an amount without a name", i, field)
			continue
		case v < 0:
			r.warn("negative_quantity", "needs[%d]: %s of %s is negative and treated as 0", i, field, name)
			v = 0
		case err != nil:
			r.warn("quantity_saturated", "needs[%d]: %s of %s is too large", i, field, name)
		}
		if v > 0 {
			out = append(out, resource.Quantity{Name: name, Milli: v})
		}
	}
	return out
}

func (r *reader) minUnit(i int, row *demand.Row) {
	for _, u := range row.MinUnit {
		inside := false
		for _, a := range row.Aggregate {
			inside = inside || a.Name == u.Name && a.Milli >= u.Milli
		}
		if !inside {
			r.warn("min_unit", "needs[%d]: min_unit of %s is not part of the aggregate", i, u.Name)
		}
	}
}
