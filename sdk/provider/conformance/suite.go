package conformance

import (
	"context"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
)

// Version is the version of the suite. Names of behaviours are never reused.
const Version = "v0.1.0"

// behaviour is one thing a provider must do.
type behaviour struct {
	name    string
	says    string
	clauses []string
	profile Profile
	// slots and hosts are how many machines it needs at a time, in SPECULATIVE and with a host.
	slots, hosts int
	// spends is how many machines it leaves FAILED for good.
	spends int
	// also lists further profiles that must be claimed for it to apply, on top of profile.
	also []Profile
	// unless lists profiles that make it not applicable.
	unless []Profile
	// needsSlots makes it not applicable to bare metal without slots.
	needsSlots bool
	// racing says that its tokens overtake each other on purpose, so that a fresh one may be stale when it arrives.
	racing bool
	do     func(*Case)
}

func (b behaviour) area() string { area, _, _ := strings.Cut(b.name, "/"); return area }

// suite is one run.
type suite struct {
	target  Target
	options Options
	epoch   int64
	seq     atomic.Int64
	run     string // part of shard ids, so that runs do not meet each other's marks

	mu         sync.Mutex
	dialer     *dialer
	marks      map[[2]string]token // what the provider must have, by (shard, machine)
	violations []string            // records that break a rule, wherever they were seen
	miscoded   []string            // FAILED_PRECONDITION on a fresh token
	operations map[string]string   // operation id -> where it was minted
	collisions []string
	failedOnes map[string]bool // machines that the run left FAILED
	used       map[string]bool // machines that a call of the run was accepted for
	hosted     map[string]bool // machines that had a host before the run
	limit      time.Duration
	blobBytes  int // of boot data that the provider takes
	inventory  inventory

	judgedSeed maphash.Seed
	judged     sync.Map // hash of a record without its id -> []string, see faultsOf
}

type token struct{ epoch, sequence int64 }

// Execute runs the suite. The error is about the run itself; what the provider does wrong is in the Report.
func Execute(ctx context.Context, t Target, o Options) (*Report, error) {
	t, err := t.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	s := &suite{
		judgedSeed: maphash.MakeSeed(),
		target:     t, options: o, epoch: time.Now().UnixMilli(), run: fmt.Sprintf("%x", time.Now().UnixNano()&0xffffffff),
		marks: map[[2]string]token{}, operations: map[string]string{}, failedOnes: map[string]bool{}, used: map[string]bool{}, hosted: map[string]bool{},
	}
	s.dialer = newDialer(t)
	defer s.dialer.close()
	report := &Report{Address: t.Addr, Suite: Version, Profiles: t.Profiles, Only: o.Only, Seed: o.Seed, Begun: time.Now()}
	if t.Slack > 1 {
		report.Slack = t.Slack
	}
	if err := s.survey(ctx, report); err != nil {
		return nil, err
	}
	missing := s.budget()
	for _, b := range behaviours() {
		if isAfterwards(b.name) && o.Soak > 0 && report.SoakPasses == 0 {
			s.soak(ctx, report, missing)
		}
		if !o.wants(b) {
			continue
		}
		r := s.judge(ctx, b, missing)
		report.Results = append(report.Results, r)
		if o.Each != nil {
			o.Each(r)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("conformance: %w", context.Cause(ctx))
		}
	}
	if len(report.Results) == 0 {
		return nil, fmt.Errorf("conformance: there is no behaviour %v; --plan lists all", o.Only)
	}
	if err := s.cleanUp(ctx, report); err != nil {
		return nil, err
	}
	report.Took = time.Since(report.Begun).Seconds()
	report.conclude()
	return report, nil
}

// Run runs the suite as subtests and returns the report. A behaviour that fails or cannot be judged fails its subtest.
func Run(t *testing.T, target Target, o Options) *Report {
	t.Helper()
	o.Each = func(r Result) {
		t.Run(r.Name, func(t *testing.T) {
			switch r.Outcome {
			case Fail, CannotJudge:
				t.Errorf("%s (%s): %s\n%s", r.Outcome, strings.Join(r.Clauses, ", "), r.Reason, strings.Join(r.Dialogue, "\n"))
			case NotApplicable:
				t.Skip(r.Reason)
			}
		})
	}
	report, err := Execute(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != Conformant {
		t.Errorf("%s: %d fail, %d could not be judged, seed %d", report.Verdict, report.Count(Fail), report.Count(CannotJudge), report.Seed)
	}
	return report
}

func (o Options) wants(b behaviour) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, b.name) || slices.Contains(o.Only, b.area())
}

// inventory is what the target has, by state and capacity type.
type inventory struct {
	machines int
	byState  map[bigfleetv1alpha1.MachineState]int
	spot     bool
}

func (i inventory) slots() int { return i.byState[speculative] }
func (i inventory) idle() int  { return i.byState[idle] }

// survey asks who the provider is and what it has.
func (s *suite) survey(ctx context.Context, r *Report) error {
	c := s.newCase(ctx, behaviour{name: "survey/inventory"})
	s.inventory.byState = map[bigfleetv1alpha1.MachineState]int{}
	list, err := c.client.List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil {
		return fmt.Errorf("conformance: List at %s: %w", s.target.Addr, err)
	}
	for _, m := range list.Msg.GetMachines() {
		s.inventory.machines++
		s.inventory.byState[m.GetState()]++
		s.hosted[m.GetId()] = hasHost(m)
		s.inventory.spot = s.inventory.spot || m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT
	}
	r.Machines = s.inventory.machines
	s.limit, s.blobBytes = s.target.Limit, blobBytes
	if who, err := s.dialer.admin(s.target.TLS).GetProvider(ctx, connect.NewRequest(&bigfleetv1alpha1.GetProviderRequest{})); err == nil {
		r.Provider, r.Version = who.Msg.GetName(), who.Msg.GetVersion()
		if most := who.Msg.GetMaxBootstrapBlobBytes(); most > 0 {
			s.blobBytes = int(min(most, blobBytes))
		}
		for _, t := range who.Msg.GetTimings() {
			if s.target.Limit == 0 {
				s.limit = max(s.limit, time.Duration(t.GetTimeoutSeconds())*time.Second)
			}
		}
	}
	if s.limit == 0 {
		s.limit = 5 * time.Minute
	}
	return nil
}

// need is how many machines the behaviours that apply want (PROV-29.6).
type need struct {
	slots, hosts int // at a time
	used         int // slots that become hosts for good, without Delete
	spent        int // machines that end FAILED
}

func (s *suite) need() (n need) {
	for _, b := range behaviours() {
		if s.applies(b) != "" || !s.options.wants(b) {
			continue
		}
		n.slots, n.hosts, n.spent = max(n.slots, b.slots), max(n.hosts, b.hosts), n.spent+b.spends
		if b.needsSlots {
			n.used += b.slots
		}
	}
	return n
}

// words says it.
func (n need) words(t Target) string {
	if t.claims(Cloud) {
		return fmt.Sprintf("%d machines in SPECULATIVE and %d in SPECULATIVE or IDLE at a time, and %d more that will end FAILED", n.slots, max(n.slots, n.hosts), n.spent)
	}
	return fmt.Sprintf("%d machines in SPECULATIVE, which stay created because Delete is not claimed, %d in SPECULATIVE or IDLE, and %d more that will end FAILED", n.used, n.hosts, n.spent)
}

// budget says why there are too few machines, empty when there are enough. One behaviour runs at a time.
func (s *suite) budget() string {
	n, slots, all := s.need(), s.inventory.slots(), s.inventory.slots()+s.inventory.idle()
	enough := slots >= n.used && all >= n.used+n.hosts+n.spent
	switch {
	case s.target.claims(Cloud):
		enough = slots >= n.slots && all >= max(n.slots, n.hosts)+n.spent
	case s.target.claims(BareMetal) && slots == 0:
		enough = all >= n.hosts+n.spent
	}
	if enough {
		return ""
	}
	return fmt.Sprintf("the run needs %s; there are %d in SPECULATIVE and %d in IDLE", n.words(s.target), slots, all-slots)
}

// applies says why a behaviour does not apply, empty when it does.
func (s *suite) applies(b behaviour) string {
	for _, p := range append([]Profile{b.profile}, b.also...) {
		if !s.target.claims(p) {
			return fmt.Sprintf("profile %s is not claimed", p)
		}
	}
	for _, p := range b.unless {
		if s.target.claims(p) {
			return fmt.Sprintf("profile %s is claimed", p)
		}
	}
	if b.needsSlots && s.target.claims(BareMetal) && s.inventory.slots() == 0 {
		return "bare metal without slots: there is nothing to create"
	}
	return ""
}

// aborted ends a behaviour from inside.
type aborted struct {
	outcome Outcome
	reason  string
}

func (s *suite) judge(ctx context.Context, b behaviour, missing string) (r Result) {
	r = Result{Name: b.name, Says: b.says, Clauses: b.clauses, Profile: b.profile, Outcome: Pass}
	begun := time.Now()
	defer func() { r.Took = time.Since(begun) }()
	if why := s.applies(b); why != "" {
		r.Outcome, r.Reason = NotApplicable, why
		return r
	}
	if missing != "" {
		r.Outcome, r.Reason = CannotJudge, missing
		return r
	}
	c := s.newCase(ctx, b)
	outcome, reason := c.play(b.do)
	if left := c.tidy(); left != "" && outcome == Pass {
		outcome, reason = Fail, "machines could not be brought back to their first state: "+left
	}
	r.Outcome, r.Reason, r.Machines, r.Evidence = outcome, reason, slices.Sorted(maps.Keys(c.taken)), c.evidence
	if outcome != Pass {
		r.Dialogue = c.dialogue.lines()
	}
	return r
}

// play runs the behaviour and turns the way it ended into an outcome.
func (c *Case) play(do func(*Case)) (outcome Outcome, reason string) {
	defer func() {
		v := recover()
		c.mu.Lock()
		found := strings.Join(c.faults, "; ")
		c.mu.Unlock()
		switch v := v.(type) {
		case nil:
			if found != "" {
				outcome, reason = Fail, found
			}
		case aborted:
			outcome, reason = v.outcome, v.reason
			if v.outcome != Fail && found != "" {
				outcome, reason = Fail, found
			}
		default:
			outcome, reason = CannotJudge, fmt.Sprintf("the suite itself failed: %v\n%s", v, debug.Stack())
		}
	}()
	do(c)
	return Pass, ""
}

func (s *suite) newCase(ctx context.Context, b behaviour) *Case {
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.name)) // a hash never fails to write
	c := &Case{
		ctx: ctx, suite: s, behaviour: b, random: rand.New(rand.NewPCG(s.options.Seed, h.Sum64())), taken: map[string]bool{},
		Target: s.target,
	}
	c.client = s.dialer.provider(s.target.TLS)
	c.shard = s.target.Shard
	if c.shard == "" {
		c.shard = "conformance-" + s.run
	}
	return c
}
