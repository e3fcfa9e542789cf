package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/remedy"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// show prints the screen, from the whole to the parts.
func show(a *app.App, seen *sight) {
	coordinator(a, seen)
	if len(seen.shards) > 1 {
		overview(a, seen.shards)
	}
	for _, p := range seen.shards {
		if len(seen.shards) > 1 {
			_, _ = fmt.Fprintln(a.Out)
		}
		shard(a, p)
	}
}

// line is one row of the screen.
func line(a *app.App, head, format string, args ...any) {
	_, _ = fmt.Fprintf(a.Out, "%-11s %s\n", head, output.Line(format, args...))
}

// coordinator says who leads and what it has open.
func coordinator(a *app.App, seen *sight) {
	if c := seen.coordinator; c != nil {
		voters, lost := 0, []string(nil)
		for _, p := range c.GetPeers() {
			if p.GetSuffrage() == "voter" {
				voters++
			}
			if !p.GetLeader() && p.GetNodeId() != c.GetNodeId() && p.GetLastContactMs() > peerSilent.Milliseconds() {
				lost = append(lost, p.GetNodeId())
			}
		}
		line(a, "coordinator", "%s leads %s, term %d, index %d", c.GetNodeId(), output.Count(voters, "voter"), c.GetFencingTerm(), c.GetAppliedIndex())
		if len(lost) > 0 {
			line(a, "warning", "coordinator %s does not answer: bigfleet raft status", strings.Join(lost, ", "))
		}
	} else if seen.leaderless != nil {
		line(a, "coordinator", "%v", seen.leaderless)
	}
	for _, m := range seen.moves {
		line(a, "move", "%s of %s from %s to %s, %s: bigfleet explain move/%s", m.GetMoveId(), output.Count(len(m.GetMachineIds()), "machine"), m.GetFromShardId(), m.GetToShardId(),
			output.Enum("STATE_", m.GetState().String()), m.GetMoveId())
	}
	for _, b := range seen.conflicts {
		line(a, "conflict", "cluster %s belongs to %s and reports to %s too: bigfleet explain cluster/%s", b.GetClusterId(), b.GetShardId(), b.GetConflictingShardId(), b.GetClusterId())
	}
}

// peerSilent is how long a follower may be quiet: it answers heartbeats ten times a second.
const peerSilent = 2 * time.Second

// overview is a row for each shard.
func overview(a *app.App, parts []part) {
	l := output.List{Columns: []output.Column{{Head: "SHARD"}, {Head: "STATE"}, {Head: "REPORTED"}, {Head: "MACHINES"}, {Head: "SESSIONS"}, {Head: "NEEDS"}, {Head: "UNMET"}, {Head: "OLDEST"}, {Head: "PAUSES"}, {Head: "SPEND"}}}
	var sum bigfleetv1alpha1.GetStatusResponse
	for _, p := range parts {
		s, report := p.status, output.Dash("")
		if p.entry != nil {
			report = fmt.Sprintf("%.0fs", p.entry.GetReportAgeSeconds())
		}
		l.Rows = append(l.Rows, []string{
			s.GetShardId(), state(s), report, fmt.Sprint(all(s)), fmt.Sprint(s.GetSessions()), fmt.Sprint(s.GetNeeds()), fmt.Sprint(s.GetUnsatisfiedNeeds()),
			output.Age(a.Now(), p.oldest.GetUnmetSinceUnixNanos()), fmt.Sprint(len(s.GetPauses())), output.Dollars(s.GetCostPerHour()),
		})
		sum.Needs += s.GetNeeds()
		sum.UnsatisfiedNeeds += s.GetUnsatisfiedNeeds()
		sum.Sessions += s.GetSessions()
		sum.CostPerHour += s.GetCostPerHour()
	}
	line(a, "fleet", "%s, %s connected, %s, %d unmet, %s", output.Count(len(parts), "shard"), output.Count(int(sum.GetSessions()), "cluster"), output.Count(int(sum.GetNeeds()), "need"), sum.GetUnsatisfiedNeeds(), output.Dollars(sum.GetCostPerHour()))
	_, _ = fmt.Fprintln(a.Out)
	_ = output.Table.Write(a.Out, l) // a broken pipe shows at the next line
}

// all counts the machines that a shard answers for.
func all(s *bigfleetv1alpha1.GetStatusResponse) (n int32) {
	for _, k := range s.GetMachinesByState() {
		n += k
	}
	return n
}

func state(s *bigfleetv1alpha1.GetStatusResponse) string {
	if s.GetReady() {
		return "ready"
	}
	return "not ready"
}

// shard is everything about one shard, worst things last, where the eye is when the command has ended.
func shard(a *app.App, p part) {
	s, now := p.status, a.Now()
	state := "ready"
	if !s.GetReady() {
		state = "not ready: " + strings.Join(s.GetNotReadyReasons(), "; ")
	}
	line := func(head, format string, args ...any) { line(a, head, format, args...) }
	line("shard", "%s  %s  epoch %d  up %s", s.GetShardId(), state, s.GetShardEpoch(), output.Age(now, s.GetStartedAtUnixNanos()))
	line("cycle", "%d, %s ago, took %.1f ms", s.GetCycle(), output.Age(now, s.GetCycleAtUnixNanos()), float64(s.GetCycleDurationNanos())/1e6)
	line("needs", "%d, %d unmet", s.GetNeeds(), s.GetUnsatisfiedNeeds())
	if p.oldest != nil {
		name := subject.ShortNeed(p.oldest)
		among := ""
		if n := s.GetUnsatisfiedNeeds(); n > unmetAsked {
			among = fmt.Sprintf(", the longest of the first %d", unmetAsked)
		}
		line("oldest", "%s waits for %s%s: bigfleet explain need/%s", name, output.Age(now, p.oldest.GetUnmetSinceUnixNanos()), among, name)
	}
	others := ""
	if n := s.GetForeignMachines(); n > 0 {
		others = fmt.Sprintf("; %d more belong to other shards", n)
	}
	line("machines", "%s%s", counts(s.GetMachinesByState(), "MACHINE_STATE_"), others)
	line("clusters", "%d connected, %d silent", s.GetSessions(), s.GetSilentClusters())
	if len(p.silent) > 0 {
		more := ""
		if n := int(s.GetSilentClusters()) - namesMax; n > 0 {
			more = fmt.Sprintf(" and %d more (bigfleet get clusters)", n)
		}
		line("silent", "%s%s: bigfleet explain cluster/%s", strings.Join(p.silent[:min(len(p.silent), namesMax)], ", "), more, p.silent[0])
	}
	line("spend", "%s", output.Dollars(s.GetCostPerHour()))
	for _, p := range s.GetProviders() {
		line("provider", "%s at %s: %s, breaker %s", p.GetName(), p.GetAddress(), inventory(p), p.GetBreaker())
		for _, pool := range p.GetStockedOutPools() {
			next := "next try " + output.Time(pool.GetRetryAtUnixNanos())
			if pool.GetRetryAtUnixNanos() < now.UnixNano() {
				next = "retried with the next need"
			}
			line("stock-out", "%s, refused %s, %s", pool.GetPool(), output.Count(int(pool.GetFailures()), "time"), next)
		}
	}
	if w := counts(s.GetWaiting(), "ACTION_KIND_"); w != "none" {
		line("waiting", "%s", w)
	}
	if w := counts(s.GetInFlight(), "ACTION_KIND_"); w != "none" {
		line("in flight", "%s", w)
	}
	if s.GetDryRun() {
		line("DRY RUN", "decisions are made but not executed")
	}
	if s.GetSuperseded() {
		line("SUPERSEDED", "a newer process of this shard exists; this one has stopped acting")
	}
	for _, p := range s.GetPauses() {
		line("PAUSED", "%s: %s, by %s, until %s (end it with: bigfleet resume %s)", p.GetPauseId(), p.GetReason(), p.GetActor(), output.End(p.GetExpiresAtUnixNanos()), p.GetPauseId())
	}
	for _, d := range s.GetDrains() {
		blocked := ""
		if len(d.GetBlockingBudgets()) > 0 {
			blocked = ", blocked by " + strings.Join(d.GetBlockingBudgets(), ", ")
		}
		line("drain", "%s of %s: %s left%s, deadline %s", d.GetMachineId(), d.GetClusterId(), output.Count(int(d.GetPodsLeft()), "Pod"), blocked, output.Time(d.GetDeadlineUnixNanos()))
	}
	if c := s.GetCoordinator(); c.GetLastError() != "" {
		line("warning", "no contact with the coordinator since %s: %s; the shard continues to decide: bigfleet raft status", output.Time(c.GetLastReportAtUnixNanos()), c.GetLastError())
	}
	for _, w := range s.GetWarnings() {
		line("warning", "%s", w)
		if do := remedy.Of(w); do != "" {
			line("", "-> %s", do)
		}
	}
}

// namesMax bounds how many silent clusters are named.
const namesMax = 5

// inventory says how many machines a provider has, and how old that knowledge is.
func inventory(p *bigfleetv1alpha1.ProviderStatus) string {
	if p.GetInventoryAgeSeconds() < 0 {
		return "not read yet"
	}
	return fmt.Sprintf("%d machines, read %.0f s ago (%s)", p.GetMachines(), p.GetInventoryAgeSeconds(), p.GetListMode())
}

// counts words a map of enum name to number, in the order of the names, without zeros.
func counts(m map[string]int32, prefix string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			out = append(out, fmt.Sprintf("%d %s", m[k], output.Enum(prefix, k)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
