package shard

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// attributeEvery is how many cycles lie between two lines of --phase-attribution-log.
const attributeEvery = 20

// attribute writes the line of --phase-attribution-log (SHARD-30.5). Its last number should be zero: a machine that is
// reclaimed while an unmet need of its cluster could use it is work done and undone.
func (s *shell) attribute(p *core.Publish) {
	var plain, same, spread int
	for _, b := range p.Needs {
		for i := range b.Rows {
			switch profile := &b.Rows[i].Form.Profile; {
			case slices.ContainsFunc(profile.Requirements, func(r demand.Requirement) bool { return r.Op == demand.Same }):
				same++
			case len(profile.Spread) > 0:
				spread++
			default:
				plain++
			}
		}
	}
	st := &p.Status
	s.log.Info("phase attribution", "cycle", st.Cycle, "needs", plain+same+spread, "plain", plain, "same", same, "spread", spread, "unmet", st.Short,
		"bootstraps", st.Planned[engine.Bootstrap], "provisions", st.Planned[engine.Provision], "preempts", st.Planned[engine.Preempt],
		"reclaims", st.Planned[engine.Reclaim], "reclaims_matching_unmet", st.Counters.ReclaimMatchesUnmet)
}
