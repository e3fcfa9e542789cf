package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// more says how many things of a kind the shard left out of its answer. A shard of an earlier version does not count them.
func more(line func(string, ...any), shown int, all int32, what string) {
	if left := int(all) - shown; left > 0 {
		line("  %d more %s not shown.", left, output.Are(left, what))
	}
}

// say words an explanation in the order of OPS-4.15.
func say(a *app.App, w io.Writer, s subject.Subject, r *bigfleetv1alpha1.ExplainResponse, candidates bool) {
	line := func(format string, args ...any) {
		_, _ = fmt.Fprintln(w, strings.TrimRight(output.Line(format, args...), " "))
	}
	line("%s", r.GetVerdict())
	if since := r.GetNeed().GetUnmetSinceUnixNanos(); since != 0 {
		line("Since %s (%s).", output.Time(since), output.Age(a.Now(), since))
	}
	if m := r.GetMachine(); m != nil {
		sayMachine(line, a, m, history.Entered(m.GetMachine(), r.GetRecords()))
		for _, past := range history.Story(a.Now(), r.GetRecords()) {
			line("%s", past)
		}
	}
	if len(r.GetFunnel()) > 0 {
		line("\nMachines that could serve it:")
		step := 0 // the widest
		for _, f := range r.GetFunnel() {
			step = max(step, utf8.RuneCountInString(f.GetStep()))
		}
		for _, f := range r.GetFunnel() {
			line("  %6d  %-*s  %s", f.GetMachines(), step, f.GetStep(), f.GetWhy())
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.GetWithheld())) {
		line("  withheld: %d for %s", r.GetWithheld()[k], k)
	}
	if len(r.GetWinners()) > 0 && r.GetNeed() != nil {
		line("\nHeld instead by:")
		for _, h := range r.GetWinners() {
			line("  %s  need/%s/%s  priority %d: %s", output.Count(int(h.GetMachines()), "machine"), h.GetNeed().GetClusterId(), h.GetNeed().GetRowId(), h.GetPriority(), h.GetWhy())
		}
		more(line, len(r.GetWinners()), r.GetWinnerCount(), "need")
	}
	if len(r.GetDomains()) > 0 {
		line("\nDomains:")
		for _, d := range r.GetDomains() {
			line("  %-20s could hold %.1f%%", d.GetDomain(), float64(d.GetCoveragePerMille())/10)
		}
		more(line, len(r.GetDomains()), r.GetDomainCount(), "domain")
	}
	if candidates && len(r.GetCandidates()) > 0 {
		line("\nCandidates, cheapest first: price + interruptions per hour (from the provider) x cost of an interruption:")
		for _, c := range r.GetCandidates() {
			line("  %-24s %s + %.4f x $%.2f = %s  %s", c.GetMachineId(), output.Dollars(c.GetPricePerHour()), c.GetInterruptionProbability(), c.GetInterruptionPenaltyDollars(), output.Dollars(c.GetEffectiveCost()), c.GetWhy())
			if seen := interruptions(c.GetSeenInterruptions()); seen != "" && c.GetInterruptionProbability() > 0 {
				line("  %-24s seen: %s", "", seen)
			}
		}
		more(line, len(r.GetCandidates()), r.GetCandidateCount(), "candidate")
	}
	if r.GetNearestMiss() != "" {
		line("\nNearest miss: %s", r.GetNearestMiss())
	}
	switch {
	case r.GetSuggestion() == "":
	case s.Kind == subject.Machine: // what ends its being kept, which is seldom anybody's to try
		line("%s", r.GetSuggestion())
	default:
		line("Try: %s", r.GetSuggestion())
	}
	if r.GetCycle() == 0 {
		line("\nThe shard has not completed a cycle since it started: it does not know its providers' machines yet.")
		return
	}
	line("\nCycle %d, %s old. More: bigfleet history %s", r.GetCycle(), output.Age(a.Now(), r.GetCycleAtUnixNanos()), s)
}

// sayMachine words a machine that entered its state at a Unix time, as far as the decision log knows; else 0.
func sayMachine(line func(string, ...any), a *app.App, m *bigfleetv1alpha1.GetMachineResponse, entered int64) {
	v := m.GetMachine().GetMachine()
	price := ", " + output.Dollars(v.GetPricePerHour())
	if host := m.GetMachine().HasHost; v.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED && host != nil && !*host {
		price = "" // nothing is paid, and nothing is offered
	}
	since := output.Age(a.Now(), m.GetMachine().GetStateSinceUnixNanos())
	switch {
	case entered != 0:
		since = output.Age(a.Now(), entered)
	case m.GetMachine().GetStateSinceStart():
		since = "at least " + since
	}
	line("%s has been %s for %s: %s, %s, zone %s%s.", v.GetId(), output.Enum("MACHINE_STATE_", v.GetState().String()), since,
		v.GetInstanceType(), output.Enum("CAPACITY_TYPE_", v.GetCapacityType().String()), output.Dash(v.GetZone()), price)
	seen := interruptions(m.GetSeenInterruptions())
	if seen != "" {
		seen = " Observed for such machines: " + seen + "."
	}
	leaving := m.GetKeepReason() == bigfleetv1alpha1.KeepReason_KEEP_REASON_LEAVING
	switch p, gone := v.GetInterruptionProbability(), v.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED; {
	case gone:
	case p >= 1 && leaving && v.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED:
		line("Its provider has announced its interruption. A replacement is bought before it is gone.")
	case p >= 1:
		line("Its provider has announced its interruption. It is replaced when it is gone.")
	case p > 0:
		line("Its provider states an interruption rate of %.3g per hour.%s", p, seen)
	}
	switch node := m.GetMachine().GetNodeName(); {
	case v.GetState() != bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED:
	case node == "":
		line("Its cluster has not reported a Node for it.")
	case !m.GetMachine().GetNodeReady():
		line("Its Node %s is not ready, or gone.", node)
	}
	if v.GetLastError() != "" {
		line("Message from its provider: %s", v.GetLastError())
	}
	if h := m.GetHoldUntilUnixNanos(); h != 0 {
		line("Held until %s. %s", output.Time(h), waitCosts(v.GetPricePerHour(), time.Duration(h-m.GetMachine().GetStateSinceUnixNanos())))
	}
	if m.GetDrain() != nil {
		line("%s", drain(m))
	}
}

// waitCosts says what an Idle machine costs until its hold ends (ENG-16.7).
func waitCosts(pricePerHour float64, wait time.Duration) string {
	cents := 100 * pricePerHour * wait.Hours()
	if cents < 1 {
		return "The wait costs less than a cent in all."
	}
	return fmt.Sprintf("The wait costs $%.2f in all.", cents/100)
}

// interruptions words what was seen of a pool: how often, in how many hours of its machines.
func interruptions(s *bigfleetv1alpha1.SeenInterruptions) string {
	hours := s.GetMachineHours()
	if hours <= 0 {
		return ""
	}
	out := fmt.Sprintf("%s in %.3g machine-hours", output.Count(int(s.GetInterruptions()), "interruption"), hours)
	if hours >= rateAfter {
		out += fmt.Sprintf(", %.3g an hour", float64(s.GetInterruptions())/hours)
	}
	return out
}

// rateAfter is from how many machine-hours on a rate says more than the counts.
const rateAfter = 10

// drain says how far a drain is, what blocks it, and what happens at its deadline (SHARD-17.10, 17.11).
func drain(m *bigfleetv1alpha1.GetMachineResponse) string {
	d := m.GetDrain()
	out := "Draining: " + output.Count(int(d.GetPodsLeft()), "Pod") + " left"
	if b := d.GetBlockingBudgets(); len(b) > 0 {
		out += ", blocked by disruption budget " + strings.Join(b, ", ")
	}
	configured := m.GetMachine().GetMachine().GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
	switch ends := output.Time(d.GetDeadlineUnixNanos()); {
	case d.GetDeadlineUnixNanos() == 0:
		return out + "."
	case configured && m.GetOperation().GetKind() == bigfleetv1alpha1.ActionKind_ACTION_KIND_RECLAIM:
		return out + ". If Pods are left at " + ends + ", the machine stays; with --drain-deadline-policy=force the shard takes it."
	default:
		return out + ". At " + ends + " the machine is taken with the Pods that are still on it."
	}
}
