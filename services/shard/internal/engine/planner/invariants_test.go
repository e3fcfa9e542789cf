package planner_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// holder is what invariants needs to know of one machine.
type holder struct {
	claims   []engine.Ref // credited or kept, section 15 aside
	promised []engine.Ref
	shares   map[engine.Ref]int64
	action   *engine.Action
}

// invariants checks ENG-P1 to P10 on one plan, as far as they can be seen from outside.
func invariants(w *engine.World, p *engine.Policy, r *engine.Result) error {
	inv := w.Inventory
	on := map[inventory.Index]*holder{}
	at := func(i inventory.Index) *holder {
		if on[i] == nil {
			on[i] = &holder{shares: map[engine.Ref]int64{}}
		}
		return on[i]
	}
	for bi, b := range r.Blocks {
		for _, c := range b.Claims {
			ref := engine.Ref{Block: int32(bi), Row: c.Row}
			if c.Kind == engine.ClaimPromised {
				at(c.Machine).promised = append(at(c.Machine).promised, ref)
			} else {
				at(c.Machine).claims = append(at(c.Machine).claims, ref)
			}
		}
		for _, s := range b.Shares {
			at(s.Machine).shares[engine.Ref{Block: int32(bi), Row: s.Row}] += s.Units
		}
	}
	for i := range r.Actions {
		a := &r.Actions[i]
		if at(a.Machine).action != nil {
			return fmt.Errorf("ENG-P8: %s is in two actions", inv.ID(a.Machine))
		}
		at(a.Machine).action = a
	}
	view := newViews(w)
	for i, h := range on {
		if err := checkMachine(w, r, view, i, h); err != nil {
			return err
		}
	}
	return checkFleet(w, p, r, view, on)
}

// views answers match and fit through the literal engine's rules.
type views struct {
	n  *reference.State
	by map[inventory.Index]*reference.Machine
}

func newViews(w *engine.World) *views {
	n := &reference.State{World: w, Policy: engine.DefaultPolicy(), Now: w.Inventory.Now(), Result: &engine.Result{}}
	n.Load()
	v := &views{n: n, by: map[inventory.Index]*reference.Machine{}}
	for _, m := range n.Machines {
		v.by[m.Index] = m
	}
	return v
}

func (v *views) need(r *engine.Result, ref engine.Ref) *reference.Need {
	n, _ := r.Need(ref)
	d := &reference.Need{Cluster: v.n.Clusters[ref.Block], Need: *n, Same: n.Form.Same}
	spreads := len(n.Form.Spread) > 0 && d.Same == nil
	if spreads { // what a hard spread counts is whole units (ENG-13.9)
		d.Need.Aggregate = roundedUp(d.Need.Aggregate, d.Need.MinUnit)
	}
	room := d.Cluster.HeadroomOf(int(ref.Row))
	d.Need.Aggregate = d.Need.Aggregate.Add(d.Need.MinUnit.Times(max(0, room))) // ENG-11.16
	d.Elsewhere = d.Need.MinUnit.Times(max(0, -room)).Min(d.Need.Aggregate)     // ENG-11.18
	d.Need.Aggregate = d.Need.Aggregate.Sub(d.Elsewhere)
	if spreads && wholeUnits(&d.Need.Aggregate, &d.Need.MinUnit) {
		d.Spread = &n.Form.Spread[0]
	}
	return d
}

func roundedUp(all, unit resource.Vector) resource.Vector {
	k := int64(0)
	for i := range all.Len() {
		u := unit.Get(all.Dim(i))
		if u == 0 {
			return all
		}
		k = max(k, (all.Val(i)-1)/u+1)
	}
	return unit.Times(k)
}

func wholeUnits(all, unit *resource.Vector) bool {
	if all.IsZero() || unit.IsZero() {
		return all.IsZero()
	}
	x := unit.Times(all.Get(unit.Dim(0)) / unit.Val(0))
	return x.Equal(all)
}

func checkMachine(w *engine.World, r *engine.Result, v *views, i inventory.Index, h *holder) error {
	inv, id, m := w.Inventory, w.Inventory.ID(i), v.by[i]
	if len(h.claims) > 1 {
		return fmt.Errorf("ENG-P1: %s has %d claims", id, len(h.claims))
	}
	if len(h.promised) > 1 {
		return fmt.Errorf("ENG-P6: %s is promised twice", id)
	}
	if len(h.shares) > 0 && len(h.claims) == 0 {
		return fmt.Errorf("ENG-11.8: %s has shares and no claim", id)
	}
	for _, ref := range append(slices.Clone(h.claims), h.promised...) {
		d := v.need(r, ref)
		s := v.n.Supply(m, d.Cluster)
		asked := d.Need.Aggregate.Add(d.Elsewhere)
		if !v.n.Usable(d, m) || !s.Touches(&asked) {
			return fmt.Errorf("ENG-P2: %s is claimed by %s, which cannot use it", id, d.Need.Group)
		}
		if d.Same != nil && reference.Value(m, d.Same.Key) != r.Domain(ref) && !keptClaim(r, ref, i) {
			return fmt.Errorf("ENG-P2: %s is outside the domain %q of %s", id, r.Domain(ref), d.Need.Group)
		}
	}
	if len(h.shares) > 0 {
		c := v.n.Clusters[h.claims[0].Block]
		rest := v.n.Supply(m, c)
		for ref, k := range h.shares {
			d := v.need(r, ref)
			taken := d.Need.MinUnit.Times(k)
			if may := d.Gives(taken); !may.Covers(&taken) {
				return fmt.Errorf("ENG-4.12a: %s holds %d units of %s", id, k, d.Need.Group)
			}
			if ref.Block != h.claims[0].Block || !v.n.Match(d, m) || !rest.Covers(&taken) {
				return fmt.Errorf("ENG-P1: shares on %s do not fit", id)
			}
			rest = rest.Sub(taken)
		}
	}
	if a := h.action; a != nil {
		st := inv.Seen(i)
		want := map[engine.Kind]inventory.State{engine.Bootstrap: inventory.Idle, engine.Provision: inventory.Speculative, engine.Preempt: inventory.Configured,
			engine.Reclaim: inventory.Configured, engine.Delete: inventory.Idle}[a.Kind]
		if st != want || inv.Foreign(i) {
			return fmt.Errorf("ENG-P8: %s of %s, which is %s", a.Kind, id, st)
		}
		if (a.Kind == engine.Bootstrap || a.Kind == engine.Provision) != (len(h.claims) == 1 && !inv.Seen(i).Bound()) {
			return fmt.Errorf("ENG-P9: %s of %s with %d claims", a.Kind, id, len(h.claims))
		}
		if a.Kind == engine.Preempt || a.Kind == engine.Reclaim {
			return checkDrain(w, r, v, i, h)
		}
	}
	return nil
}

func keptClaim(r *engine.Result, ref engine.Ref, i inventory.Index) bool {
	return slices.Contains(r.Blocks[ref.Block].Claims, engine.Claim{Machine: i, Row: ref.Row, Kind: engine.ClaimKept})
}

func checkDrain(w *engine.World, r *engine.Result, v *views, i inventory.Index, h *holder) error {
	inv, id := w.Inventory, w.Inventory.ID(i)
	c := w.Demand.Cluster(inv.Cluster(i))
	if c == nil || !c.Facts.Heard {
		return fmt.Errorf("ENG-P6: drain of %s, whose cluster was not heard", id)
	}
	d := r.Drains[h.action.Drain]
	if h.action.Cause != engine.CauseInversion {
		if len(h.claims) > 0 {
			return fmt.Errorf("ENG-P5: %s is excess and claimed", id)
		}
		return nil
	}
	n, cluster := r.Need(d.Preemptor)
	if cluster == c.Name {
		return fmt.Errorf("ENG-P6: %s is a victim inside its own cluster", id)
	}
	for _, ref := range append(slices.Clone(h.claims), sharers(h)...) {
		if x, _ := r.Need(ref); x.Form.Priority >= n.Form.Priority {
			return fmt.Errorf("ENG-P10: %s serves priority %d and is taken for %d", id, x.Form.Priority, n.Form.Priority)
		}
	}
	if s, ok := inv.Attribution(i); ok && s.Priority >= n.Form.Priority {
		return fmt.Errorf("ENG-P6: %s is attributed priority %d and taken for %d", id, s.Priority, n.Form.Priority)
	}
	return nil
}

func sharers(h *holder) []engine.Ref {
	var out []engine.Ref
	for ref := range h.shares {
		out = append(out, ref)
	}
	return out
}

// takenOver reports whether section 15 promised a machine that was on its way to d's cluster to another Need (ENG-15.4).
func takenOver(v *views, on map[inventory.Index]*holder, d *reference.Need, ref engine.Ref) bool {
	return slices.ContainsFunc(v.n.Machines, func(m *reference.Machine) bool {
		h := on[m.Index]
		return h != nil && reference.InFlight(m, d.Cluster) && slices.ContainsFunc(h.promised, func(to engine.Ref) bool { return to != ref })
	})
}

// checkFleet looks at every machine and every row: what is Configured is claimed or excess at the end (ENG-9.9), and each has an
// action or a reason to be kept (ENG-19.1).
func checkFleet(w *engine.World, p *engine.Policy, r *engine.Result, v *views, on map[inventory.Index]*holder) error {
	inv := w.Inventory
	for i := range inv.All() {
		h := on[i]
		if h == nil {
			h = &holder{}
		}
		c := w.Demand.Cluster(inv.Cluster(i))
		excess := inv.Seen(i) == inventory.Configured && !inv.Foreign(i) && len(h.claims) == 0 && c != nil && c.Facts.Heard
		taken := h.action != nil && (h.action.Kind == engine.Reclaim || h.action.Kind == engine.Preempt && h.action.Cause == engine.CauseExcessTaken)
		if excess != taken {
			return fmt.Errorf("ENG-P5: %s: excess %v, drained %v", inv.ID(i), excess, taken)
		}
		if h.action != nil && h.action.Kind == engine.Delete {
			hold, ok := p.Hold.Of(inv.CapacityType(i), inv.Price(i))
			_, promised := inv.Promise(i)
			if !ok || promised || len(h.claims) > 0 || inv.Now()-inv.Since(i) < hold {
				return fmt.Errorf("ENG-P7: delete of %s", inv.ID(i))
			}
		}
		if k := r.Keep(w, p, i); (k.Action != nil) == (k.Reason != engine.NoKeepReason) {
			return fmt.Errorf("ENG-P9: %s has action %v and reason %v", inv.ID(i), k.Action, k.Reason)
		}
	}
	for bi, b := range r.Blocks {
		if len(b.Verdicts) != len(b.Needs) {
			return fmt.Errorf("ENG-P9: %s has %d verdicts for %d rows", b.Cluster, len(b.Verdicts), len(b.Needs))
		}
		for i := range b.Needs {
			vd := &b.Verdicts[i]
			if (vd.Status == engine.Short) != (vd.Missing >= 0) || (vd.Reason == engine.NoUnmetReason) != (vd.Status != engine.Short) || vd.Status == 0 {
				return fmt.Errorf("ENG-P9: verdict %+v of %s", *vd, b.Needs[i].Group)
			}
			if vd.Status == engine.Short && b.Missing[vd.Missing].Residual.IsZero() {
				return fmt.Errorf("ENG-P9: %s is short by nothing", b.Needs[i].Group)
			}
			if err := checkNeed(r, v, on, engine.Ref{Block: int32(bi), Row: int32(i)}); err != nil {
				return err
			}
		}
		for i := range b.Folded {
			if err := checkNeed(r, v, on, engine.Ref{Block: int32(bi), Row: engine.FoldedRow + int32(i)}); err != nil {
				return err
			}
		}
	}
	return checkMoney(w, r)
}

// checkNeed: ENG-P3, that what counts and what is missing add up, shares on a machine left out for its claimant (ENG-P1), and
// that no walk went on after the Need was covered: one machine at least is needed; ENG-P4, that no short plain Need is left
// beside what it could use; ENG-P25, that nothing is taken for Pods that start together and cannot.
func checkNeed(r *engine.Result, v *views, on map[inventory.Index]*holder, ref engine.Ref) error {
	b := r.Blocks[ref.Block]
	if ref.Row < engine.FoldedRow && b.Verdicts[ref.Row].Fold >= 0 {
		return nil // its folded Need is checked
	}
	d := v.need(r, ref)
	var gives []resource.Vector // of each claim
	var at []string             // value of the key of its hard spread
	var sum resource.Vector
	for _, c := range b.Claims {
		if c.Row != ref.Row || c.Kind == engine.ClaimKept {
			continue
		}
		s := v.n.Supply(v.by[c.Machine], d.Cluster)
		for to, k := range on[c.Machine].shares {
			if c.Kind == engine.ClaimPromised {
				break // what others have on a victim ends with its drain
			}
			x := v.need(r, to)
			s = s.Sub(x.Need.MinUnit.Times(k))
		}
		gives = append(gives, d.Gives(s))
		if d.Spread != nil {
			at = append(at, reference.Value(v.by[c.Machine], d.Spread.Key))
		}
		sum = sum.Add(d.Gives(s))
	}
	claims := len(gives)
	for _, s := range b.Shares {
		if s.Row == ref.Row {
			sum = sum.Add(d.Need.MinUnit.Times(s.Units))
			if d.Spread != nil {
				gives, at = append(gives, d.Need.MinUnit.Times(s.Units)), append(at, reference.Value(v.by[s.Machine], d.Spread.Key))
			}
		}
	}
	if d.Spread != nil {
		return checkSpread(r, v, d, ref, gives, at, claims)
	}
	rest := d.Need.Aggregate.Sub(sum)
	all := d.Need.Aggregate.Add(d.Elsewhere) // machines in use stay for it (ENG-11.18)
	// Where shares come and go, what a machine counts for may grow after the walk.
	if d.Cluster.Facts.SharingPerMille == 0 && rest.IsZero() && len(gives) > 0 && !slices.ContainsFunc(gives, func(x resource.Vector) bool {
		without := sum.Sub(x)
		return !without.Covers(&all)
	}) {
		return fmt.Errorf("ENG-P3: %s has %d machines and would be covered without any of them", d.Need.Group, len(gives))
	}
	short := slices.Contains(r.Short, ref)
	if short == rest.IsZero() && !sharedOnly(b, ref) {
		return fmt.Errorf("ENG-P3: %s lacks %v and is short: %v", d.Need.Group, rest.Quantities(v.n.World.Space.Dimensions), short)
	}
	lacks := d.LacksToStart(rest)
	waits := ref.Row < engine.FoldedRow && !lacks.IsZero()
	if waits && !takenOver(v, on, d, ref) && slices.ContainsFunc(b.Claims, func(c engine.Claim) bool {
		return c.Row == ref.Row && (c.Kind == engine.ClaimIdle || c.Kind == engine.ClaimPurchased)
	}) {
		return fmt.Errorf("ENG-P25: %s cannot start and takes machines", d.Need.Group)
	}
	if !short || d.Same != nil || heldNeed(b, v, ref) {
		return nil
	}
	for _, m := range v.n.Machines {
		s := v.n.Supply(m, d.Cluster)
		h := on[m.Index]
		if h != nil && (len(h.claims) > 0 || len(h.promised) > 0) || !v.n.Usable(d, m) || !s.Touches(&rest) {
			continue
		}
		mine := m.Seen.Bound() && m.Machine.Cluster == b.Cluster && !slices.Contains(b.Excluded, m.Index)
		mine = mine || reference.InFlight(m, d.Cluster)
		pool := !m.Foreign && (m.Seen == inventory.Idle || m.Seen == inventory.Speculative) && m.Promise == nil && !reference.WithheldFor(m, b.Cluster)
		if mine || pool && !waits {
			return fmt.Errorf("ENG-P4: %s is short and %s is left", d.Need.Group, m.Machine.ID)
		}
	}
	return nil
}

// checkSpread is ENG-P3 for a hard spread, by the rule of kube-scheduler: what runs is filled up one by one, each under a value that has room
// and at most as many as the least under any value, and the skew (ENG-13.9).
func checkSpread(r *engine.Result, v *views, d *reference.Need, ref engine.Ref, gives []resource.Vector, at []string, claims int) error {
	b := r.Blocks[ref.Block]
	asked := unitsIn(&d.Need.Aggregate, &d.Need.MinUnit)
	if asked > 10_000 {
		return nil
	}
	run := func(without int) (n int64) {
		room, count := map[string]int64{}, map[string]int64{}
		for _, m := range v.n.Machines {
			there := m.Seen.Bound() && m.Machine.Cluster == b.Cluster && !slices.Contains(b.Excluded, m.Index) || reference.InFlight(m, d.Cluster)
			if x, has := reference.ValueOf(m, d.Spread.Key); has && there && v.n.Match(d, m) {
				room[x] += 0
			}
		}
		for i, x := range at {
			if room[x] += 0; i != without {
				room[x] = min(asked, room[x]+min(asked, unitsIn(&gives[i], &d.Need.MinUnit)))
			}
		}
		for n < asked {
			best := ""
			low := int64(math.MaxInt64)
			for x := range room {
				low = min(low, count[x])
			}
			if len(room) < int(d.Spread.MinDomains) {
				low = 0
			}
			for x := range room {
				if count[x] < room[x] && count[x] < low+int64(d.Spread.MaxSkew) && (best == "" || count[x] < count[best] || count[x] == count[best] && x < best) {
					best = x
				}
			}
			if best == "" {
				break
			}
			count[best]++
			n++
		}
		return n
	}
	n, short := run(-1), slices.Contains(r.Short, ref)
	if short != (n < asked) {
		return fmt.Errorf("ENG-P3: %d of %d units of %s run, and it is short: %v", n, asked, d.Need.Group, short)
	}
	if d.Cluster.Facts.SharingPerMille > 0 || !d.Elsewhere.IsZero() || short || claims == 0 {
		return nil
	}
	own := d.Cluster.OwnOf(int(ref.Row)) // machines in use stay until they hold so many units (ENG-11.18)
	for i := range gives {
		own -= unitsIn(&gives[i], &d.Need.MinUnit)
	}
	for i := range claims {
		if run(i) < asked || own+unitsIn(&gives[i], &d.Need.MinUnit) > 0 {
			return nil
		}
	}
	return fmt.Errorf("ENG-P3: %s has %d machines and would be covered without any of them", d.Need.Group, claims)
}

func unitsIn(all, unit *resource.Vector) int64 {
	n := int64(math.MaxInt64)
	for i := range unit.Len() {
		n = min(n, all.Get(unit.Dim(i))/unit.Val(i))
	}
	return n
}

// sharedOnly: credits of shares are bounded by what was missing when they were given, so a Need that lost something later
// may be short by less than its shares would cover.
func sharedOnly(b *engine.Block, ref engine.Ref) bool {
	return slices.ContainsFunc(b.Shares, func(s engine.Share) bool { return s.Row == ref.Row })
}

func heldNeed(b *engine.Block, v *views, ref engine.Ref) bool {
	if ref.Row < engine.FoldedRow {
		return b.Verdicts[ref.Row].Hold != demand.NotHeld
	}
	for _, m := range b.Folded[ref.Row-engine.FoldedRow].Members {
		if b.Verdicts[m].Hold == demand.NotHeld {
			return false
		}
	}
	return true
}

// checkMoney is ENG-P15.
func checkMoney(w *engine.World, r *engine.Result) error {
	inv := w.Inventory
	before := int64(0)
	for i := range inv.All() {
		if inv.Exists(i) && !inv.Foreign(i) {
			before = resource.AddSat(before, inv.Price(i))
		}
	}
	after := before
	for _, a := range r.Actions {
		switch a.Kind {
		case engine.Provision:
			after = resource.AddSat(after, inv.Price(a.Machine))
		case engine.Delete:
			after -= inv.Price(a.Machine)
		}
	}
	if before != r.CostBefore || after != r.CostAfter {
		return fmt.Errorf("ENG-P15: cost %d and %d, want %d and %d", r.CostBefore, r.CostAfter, before, after)
	}
	return nil
}
