package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// soaking are the areas that a soak repeats: they bring their machines back and leave nothing FAILED.
var soaking = [...]string{"life", "args", "fence", "once", "meta", "list", "race", "walk", "size"}

// soak repeats what can be repeated, pass after pass with a new seed, until the time is up. Only what goes wrong is
// reported; the behaviours that look back over the whole run judge these passes too.
func (s *suite) soak(ctx context.Context, report *Report, missing string) {
	until := time.Now().Add(s.options.Soak)
	first, run := s.options.Seed, s.run
	defer func() { s.options.Seed, s.run = first, run }()
	for time.Now().Before(until) && ctx.Err() == nil {
		report.SoakPasses++
		s.options.Seed = first + uint64(report.SoakPasses)   //nolint:gosec // a count
		s.run = fmt.Sprintf("%s.%d", run, report.SoakPasses) // shards without marks
		for _, b := range behaviours() {
			if !s.options.wants(b) || b.spends > 0 || !slices.Contains(soaking[:], b.area()) || b.profile == Fault || b.profile == Durable || isAfterwards(b.name) {
				continue
			}
			r := s.judge(ctx, b, missing)
			if r.Outcome != Fail {
				continue
			}
			r.Reason = fmt.Sprintf("pass %d of the soak, seed %d: %s", report.SoakPasses, s.options.Seed, r.Reason)
			report.Results = append(report.Results, r)
			if s.options.Each != nil {
				s.options.Each(r)
			}
		}
	}
}

func isAfterwards(name string) bool {
	return slices.ContainsFunc(afterwards(), func(b behaviour) bool { return b.name == name })
}
