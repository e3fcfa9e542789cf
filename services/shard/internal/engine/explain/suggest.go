package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Suggestion is a change that ends a shortfall. It was tried: a what-if with these edits settles with the Need satisfied
// (ENG-19.8, ENG-19.11).
type Suggestion struct {
	Say     string
	Edits   []Edit
	Cluster string
	Key     demand.RowKey // of the Need once the edits are made
}

// suggestTries bounds how many changes are tried: each costs a copy of the world and up to SettleRounds plans.
const suggestTries = 14

// Suggest looks for one change that would end the shortfall of a row, or returns nil. It changes nothing of the input.
func Suggest(in engine.Input, r *engine.Result, ref engine.Ref) *Suggestion {
	if r.Blocks[ref.Block].Verdicts[ref.Row].Status != engine.Short {
		return nil
	}
	s := newSuggester(in, r, ref)
	list := s.list()
	for _, c := range list[:min(len(list), suggestTries)] {
		if c.helps(in) {
			return &c
		}
	}
	return nil
}

// helps tries the suggestion.
func (c *Suggestion) helps(in engine.Input) bool {
	a := &Answer{World: in.World.Clone()}
	for _, e := range c.Edits {
		if e.Apply(a.World) != "" {
			return false
		}
	}
	in.World = a.World
	a.run(in, true)
	v, _ := a.Final.Verdict(c.Cluster, c.Key)
	return v != nil && v.Status != engine.Short
}

// suggester makes the list of changes for one row, the smallest interference first.
type suggester struct {
	in  engine.Input
	r   *engine.Result
	v   *engine.Verdict
	row demand.Row
	key demand.RowKey
	cl  string
	x   *explainer
	e   *NeedExplanation
	all []Suggestion

	prefix []Edit // every suggestion begins with these
	said   string
}

func newSuggester(in engine.Input, r *engine.Result, ref engine.Ref) *suggester {
	n, cluster := r.Need(ref)
	dims := in.World.Space.Dimensions
	return &suggester{in: in, r: r, v: &r.Blocks[ref.Block].Verdicts[ref.Row], key: n.RowKey(), cl: cluster,
		row: demand.Row{Profile: n.Form.Profile, Group: n.Group, Aggregate: n.Aggregate.Quantities(dims), MinUnit: n.MinUnit.Quantities(dims),
			RowID: n.RowID, Fingerprint: n.Form.Fingerprint},
		x: newExplainer(in.World, r, ref), e: ExplainNeed(in.World, in.Policy, r, ref)}
}

func (s *suggester) add(say string, key demand.RowKey, edits ...Edit) {
	s.all = append(s.all, Suggestion{Say: s.said + say, Edits: append(slices.Clone(s.prefix), edits...), Cluster: s.cl, Key: key})
}

// change suggests another row in the place of this one, and more edits.
func (s *suggester) change(say string, with func(r *demand.Row), more ...Edit) {
	row := s.row
	row.Profile.Requirements, row.Profile.Spread = slices.Clone(row.Profile.Requirements), slices.Clone(row.Profile.Spread)
	row.Profile.Tolerations, row.MinUnit = slices.Clone(row.Profile.Tolerations), slices.Clone(row.MinUnit)
	with(&row)
	row.Seal()
	s.add(say, demand.RowKey{Fingerprint: row.Fingerprint, Group: row.Group}, append(more, ChangeRow{s.cl, s.key, row})...)
}

func (s *suggester) list() []Suggestion {
	if s.v.Hold != demand.NotHeld {
		s.prefix = []Edit{LiftHolds{Cluster: s.cl, Key: &s.key}}
		s.add(strings.TrimSuffix(s.v.Detail.Remedy(), ".")+"; until then the need waits.", s.key)
		if s.v.Detail != engine.DetailParked { // a parked gang is tried again as soon as there is more
			s.said = strings.TrimSuffix(s.v.Detail.Remedy(), ".") + ". Then: "
		}
	}
	s.requirements()
	s.unit()
	s.marks()
	s.nodes()
	s.spread()
	s.addMachines()
	s.priority()
	return s.all
}

// requirements suggests to drop the requirement that costs most, and to tolerate the taint that does.
func (s *suggester) requirements() {
	if k := s.x.bestRemoval(); k >= 0 && (s.v.Detail == engine.DetailNoMatch || s.v.Detail == engine.DetailTooSmall || s.v.Detail == engine.DetailDimensionMissing) {
		q := s.row.Profile.Requirements[min(k, len(s.row.Profile.Requirements)-1)]
		s.change("Drop the requirement "+q.Text()+".", func(r *demand.Row) {
			r.Profile.Requirements = slices.DeleteFunc(r.Profile.Requirements, func(x demand.Requirement) bool {
				return x.Key == q.Key && x.Op == q.Op && slices.Equal(x.Values, q.Values)
			})
		})
	}
	if n := s.e.Nearest; n != nil && n.Why == RejectTaint {
		i, _ := s.in.World.Inventory.Find(n.Machine)
		taints := s.x.inv.Shape(s.x.inv.Class(s.x.inv.Row(i).Class).Shape).Taints
		s.change("Tolerate the "+n.Text+".", func(r *demand.Row) {
			for _, t := range taints {
				r.Profile.Tolerations = append(r.Profile.Tolerations, demand.Toleration{Key: t.Key, Op: demand.TolerationExists})
			}
		})
	}
}

// unit suggests a smaller min unit: what the nearest machine offers.
func (s *suggester) unit() {
	n := s.e.Nearest
	if s.v.Detail != engine.DetailTooSmall || n == nil || n.Why != RejectTooSmall {
		return
	}
	i, _ := s.in.World.Inventory.Find(n.Machine)
	sup := s.x.f.Vector(s.x.f.Supply(s.x.inv.Row(i).Class))
	s.change("Request units that fit "+n.Machine+": "+n.Text+".", func(r *demand.Row) {
		for j := range r.MinUnit {
			if d, ok := s.in.World.Space.Dimensions.Find(r.MinUnit[j].Name); ok {
				r.MinUnit[j].Milli = min(r.MinUnit[j].Milli, sup.Get(resource.Dim(d)))
			}
		}
	})
}

// marks suggests to end what withholds the machines that fit.
func (s *suggester) marks() {
	for _, c := range s.e.Withheld {
		if restocked(c.Reason) {
			s.add("Wait for the withheld machines ("+c.Reason.String()+"), or request more from the provider.", s.key, Restock{})
			return
		}
	}
}

// nodes suggests to make the machines join that were given up for it.
func (s *suggester) nodes() {
	if s.v.Detail != engine.DetailNodeNotJoined {
		return
	}
	var edits []Edit
	for _, i := range s.x.excluded {
		edits = append(edits, SetNode{s.in.World.Inventory.ID(i), true})
	}
	s.add("Make the missing Nodes join: "+engine.DetailNodeNotJoined.Remedy(), s.key, edits...)
}

// spread suggests to give up the spread constraint.
func (s *suggester) spread() {
	if s.v.Detail == engine.DetailSpreadBlocked {
		s.change("Increase maxSkew, or set whenUnsatisfiable to ScheduleAnyway.", func(r *demand.Row) { r.Profile.Spread = nil })
	}
}

// priority suggests the least priority that displaces somebody, and the one that displaces everybody listed.
func (s *suggester) priority() {
	if len(s.e.Holders) == 0 {
		return
	}
	for _, h := range [...]Holder{slices.MinFunc(s.e.Holders, byPriority), slices.MaxFunc(s.e.Holders, byPriority)} {
		p := h.Priority
		if p == 1<<31-1 || p < s.row.Profile.Priority {
			continue
		}
		s.change("Raise the priority to "+strconv.Itoa(int(p)+1)+".", func(r *demand.Row) { r.Profile.Priority = p + 1 })
	}
}

func byPriority(a, b Holder) int { return cmp.Compare(a.Priority, b.Priority) }

// gapMax is how many machines a suggestion takes at most for the gap itself; beyond that it adds larger ones. It may add
// several times as many, because other waiting Needs come first.
const gapMax = 32

// addMachines suggests new slots like the nearest machine: as many as the gap, then more, because others wait too, or because a gang
// or a spread must begin elsewhere.
func (s *suggester) addMachines() {
	m, like := s.template()
	m.State, m.Cluster, m.LastError, m.Failure = inventory.Speculative, "", "", 0
	lack := s.lack()
	s.enlarge(&m, lack)
	over := s.x.cl.Overhead.Quantities(s.in.World.Space.Dimensions)
	gap, n := copies(&m, s.e.Residual, over), copies(&m, lack, over)
	values := s.spreadValues(&m)
	machines := func(count int) (edits []Edit, say string) {
		for k := range count {
			for v, value := range values {
				one := m
				one.ID = fmt.Sprintf("suggested-%d-%d", v, k)
				one.Labels = slices.Clone(m.Labels)
				if s.x.spread != "" {
					setLabel(&one, s.x.spread, value)
				}
				edits = append(edits, PutMachine{one})
			}
		}
		return edits, machineCount(len(edits)) + s.unlike(&m, like) + "."
	}
	for _, count := range slices.Compact([]int{min(gap, n), n, 2 * n, 4 * n, 64 * n}) {
		edits, say := machines(count)
		s.add("Add "+say, s.key, edits...)
	}
	if len(s.row.Profile.Spread) == 0 {
		return
	}
	for _, count := range [...]int{2 * n, 64 * n} { // where fewer domains can be had than the constraint requires
		edits, say := machines(count)
		s.change("Set whenUnsatisfiable to ScheduleAnyway, and add "+say, func(r *demand.Row) { r.Profile.Spread = nil }, edits...)
	}
}

func machineCount(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return strconv.Itoa(n) + " machines"
}

// unlike words what the new machines are: like an existing one, with what differs from it; or all that they must have.
func (s *suggester) unlike(m *inventory.Machine, like string) string {
	var old inventory.Machine
	out, had := " with ", s.x.inv.Len() > 0
	i, ok := s.in.World.Inventory.Find(like)
	if had = had && ok; had {
		old = s.in.World.Inventory.Machine(i)
		s.resources(&old, s.in.World.Inventory, like)
		out = " like " + like + ", but with "
	}
	var with []string
	for _, q := range m.Resources {
		if q.Milli > milliOf(old.Resources, q.Name) {
			with = append(with, q.Name+" "+quantity.Human(q.Name, q.Milli))
		}
	}
	for _, l := range m.Labels {
		if LabelOf(&old, l.Key) != l.Value {
			with = append(with, l.Key+"="+l.Value)
		}
	}
	if len(with) == 0 {
		return strings.TrimSuffix(out, ", but with ")
	}
	return out + strings.Join(with, ", ")
}

// lack is what new machines have to bring: the whole of a gang, because it must sit in one domain, and of a Need with a hard spread, which counts by domain.
func (s *suggester) lack() []resource.Quantity {
	if s.x.same != "" || s.x.spread != "" {
		return s.row.Aggregate
	}
	return s.e.Residual
}

// template is the machine that new ones are made after: the nearest one, with what it fails by put right.
func (s *suggester) template() (inventory.Machine, string) {
	inv := s.in.World.Inventory
	m := inventory.Machine{CapacityType: inventory.OnDemand}
	like := ""
	switch {
	case len(s.e.Candidates) > 0:
		like = s.e.Candidates[0].Machine
	case s.e.Nearest != nil:
		like = s.e.Nearest.Machine
	}
	if i, ok := inv.Find(like); ok {
		m = inv.Machine(i)
		if s.x.cl.Knows(inv.Shape(inv.Class(inv.Row(i).Class).Shape).Type) {
			m.InstanceType = "" // a larger machine is of another type
		}
	}
	m.Taints, m.Allocatable = nil, nil
	m.Labels = slices.Clone(m.Labels)
	s.resources(&m, inv, like)
	for _, q := range s.row.Profile.Requirements {
		answer(&m, q, s.x.domain)
	}
	for _, t := range s.row.Profile.Spread {
		if LabelOf(&m, t.Key) == "" {
			setLabel(&m, t.Key, "suggested")
		}
	}
	return m, like
}

// resources gives the template what the original offers for sure.
func (s *suggester) resources(m *inventory.Machine, inv *inventory.Table, like string) {
	if i, ok := inv.Find(like); ok {
		supply := inv.Class(inv.Row(i).Class).Supply
		m.Resources = supply.Quantities(s.in.World.Space.Dimensions)
	}
}

// answer makes a machine answer a requirement.
func answer(m *inventory.Machine, q demand.Requirement, domain string) {
	first := "suggested"
	if len(q.Values) > 0 {
		first = q.Values[0]
	}
	has := LabelOf(m, q.Key)
	switch q.Op {
	case demand.In:
		if !slices.Contains(q.Values, has) || has == "" {
			setLabel(m, q.Key, first)
		}
	case demand.NotIn:
		if has != "" && slices.Contains(q.Values, has) {
			setLabel(m, q.Key, "")
		}
	case demand.Exists:
		if has == "" {
			setLabel(m, q.Key, first)
		}
	case demand.DoesNotExist:
		setLabel(m, q.Key, "")
	case demand.Gt, demand.Lt:
		setLabel(m, q.Key, beyond(q, has))
	case demand.Same:
		switch {
		case domain != "":
			setLabel(m, q.Key, domain)
		case has == "" || len(q.Values) > 0 && !slices.Contains(q.Values, has):
			setLabel(m, q.Key, first)
		}
	}
}

// LabelOf is the value of a label of a machine; zone and instance type are labels, too.
func LabelOf(m *inventory.Machine, key string) string {
	switch {
	case key == inventory.TypeKey && m.InstanceType != "":
		return m.InstanceType
	case key == inventory.ZoneKey && m.Zone != "":
		return m.Zone
	}
	for _, l := range m.Labels {
		if l.Key == key {
			return l.Value
		}
	}
	return ""
}

// setLabel gives a machine a label, or takes it away with "".
func setLabel(m *inventory.Machine, key, value string) {
	switch key {
	case inventory.TypeKey:
		m.InstanceType = value
	case inventory.ZoneKey:
		m.Zone = value
	}
	m.Labels = slices.DeleteFunc(m.Labels, func(l inventory.Label) bool { return l.Key == key })
	if value != "" {
		m.Labels = append(m.Labels, inventory.Label{Key: key, Value: value})
	}
}

// enlarge makes the template large enough for one unit and for the gap in at most gapMax machines.
func (s *suggester) enlarge(m *inventory.Machine, lack []resource.Quantity) {
	over := s.x.cl.Overhead.Quantities(s.in.World.Space.Dimensions)
	raise := func(name string, milli int64) {
		if resource.IsLimit(name) { // more machines help, not one whose kubelet takes more Pods
			return
		}
		at := slices.IndexFunc(m.Resources, func(q resource.Quantity) bool { return q.Name == name })
		if at < 0 {
			at = len(m.Resources)
			m.Resources = append(m.Resources, resource.Quantity{Name: name})
		}
		m.Resources[at].Milli = max(m.Resources[at].Milli, milli)
	}
	for _, q := range s.row.MinUnit {
		raise(q.Name, resource.AddSat(q.Milli, milliOf(over, q.Name)))
	}
	for _, q := range s.row.Aggregate { // everything of what the original does not offer: it may have been lent until now
		if q.Milli > 0 && milliOf(m.Resources, q.Name) <= milliOf(over, q.Name) {
			raise(q.Name, resource.AddSat(q.Milli, milliOf(over, q.Name)))
		}
	}
	for _, q := range lack {
		if q.Milli <= 0 {
			continue
		}
		each := (q.Milli-1)/gapMax + 1
		if unit := milliOf(s.row.MinUnit, q.Name); unit > 0 { // room for whole Pods: the rest of a machine serves none
			each = resource.AddSat(each, unit-1) / unit * unit
		}
		raise(q.Name, resource.AddSat(each, milliOf(over, q.Name)))
	}
}

// beyond is a value that answers Gt or Lt: the one that is there if it does.
func beyond(q demand.Requirement, has string) string {
	if q.Compares(has) || len(q.Values) != 1 {
		return has
	}
	n, err := strconv.ParseInt(q.Values[0], 10, 64)
	switch {
	case err != nil || q.Op == demand.Gt && n == math.MaxInt64 || q.Op == demand.Lt && n == math.MinInt64:
		return has
	case q.Op == demand.Gt:
		return strconv.FormatInt(n+1, 10)
	}
	return strconv.FormatInt(n-1, 10)
}

func milliOf(list []resource.Quantity, name string) int64 {
	for _, q := range list {
		if q.Name == name {
			return q.Milli
		}
	}
	return 0
}

// copies is how many machines like m cover what is lacking.
func copies(m *inventory.Machine, lack, over []resource.Quantity) int {
	n := int64(1)
	for _, q := range lack {
		each := cmp.Or(milliOf(m.Resources, q.Name), resource.Unstated(q.Name)) - milliOf(over, q.Name)
		if q.Milli > 0 && each > 0 {
			n = max(n, (q.Milli-1)/each+1)
		}
	}
	return int(min(n, gapMax))
}

// spreadValues lists the values of the spread key that new machines should have, at most a few: those that some machine
// has and that the need's requirements allow, or else the template's own.
func (s *suggester) spreadValues(m *inventory.Machine) []string {
	const few = 8
	own := LabelOf(m, s.x.spread)
	if own == "" {
		own = "suggested"
	}
	out := []string{own}
	if s.x.spread == "" {
		return out
	}
	for i := range s.x.inv.All() {
		v := s.x.value(i, s.x.spread)
		if v == "" || slices.Contains(out, v) || len(out) == few {
			continue
		}
		one := inventory.Machine{Labels: []inventory.Label{{Key: s.x.spread, Value: v}}}
		setLabel(&one, s.x.spread, v)
		for _, q := range s.row.Profile.Requirements {
			if q.Key == s.x.spread {
				answer(&one, q, "")
			}
		}
		if LabelOf(&one, s.x.spread) == v {
			out = append(out, v)
		}
	}
	return out
}
