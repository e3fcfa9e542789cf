package planner_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// script builds worlds from words, for the dialogues and for tests written in Go. A Need has an alias, cluster/name.
type script struct {
	w       *engine.World
	rows    map[string]*scriptRow // by alias
	order   []string
	facts   map[string]demand.Facts
	over    map[string][]resource.Quantity
	names   map[demand.RowKey][]string // aliases by row key
	policy  *engine.Policy
	parking ledger.Parking
}

type scriptRow struct {
	cluster string
	row     demand.Row
	arrival int64
	hold    demand.Hold
	room    int64 // negative: served elsewhere
	full    []string
	own     int64 // that its own machines shall hold
}

func newScript() *script {
	return &script{w: engine.NewWorld(), rows: map[string]*scriptRow{}, facts: map[string]demand.Facts{}, over: map[string][]resource.Quantity{},
		names: map[demand.RowKey][]string{}, policy: engine.DefaultPolicy()}
}

// do runs one line and panics on a word it does not know.
func (s *script) do(line string) {
	words := strings.Fields(line)
	switch words[0] {
	case "cluster":
		s.cluster(words[1], words[2:])
	case "need":
		s.need(words[1], words[2:])
	case "withdraw":
		for _, alias := range words[1:] {
			c := s.rows[alias].cluster
			delete(s.rows, alias)
			s.order = slices.DeleteFunc(s.order, func(a string) bool { return a == alias })
			s.replace(c)
		}
	case "machine":
		s.machine(words[1], words[2:])
	case "needs": // needs red/n1..n9 …: the same words for each
		cluster, names, _ := strings.Cut(words[1], "/")
		for _, name := range between(names) {
			s.need(cluster+"/"+name, words[2:])
		}
	case "machines": // machines m1..m9 …
		for _, id := range between(words[1]) {
			s.machine(id, words[2:])
		}
	case "remove":
		for _, id := range words[1:] {
			s.w.Inventory.Remove(s.index(id))
		}
	case "policy":
		s.setPolicy(words[1:])
	default:
		panic("unknown word: " + line)
	}
}

// between reads "m08..m10" as m08, m09, m10.
func between(v string) (out []string) {
	from, to, _ := strings.Cut(v, "..")
	prefix := strings.TrimRight(from, "0123456789")
	lo, hi := number(from[len(prefix):]), number(strings.TrimPrefix(to, prefix))
	for n := lo; n <= hi; n++ {
		out = append(out, fmt.Sprintf("%s%0*d", prefix, len(from)-len(prefix), n))
	}
	return out
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *script) index(id string) inventory.Index {
	i, ok := s.w.Inventory.Find(id)
	if !ok {
		panic("no machine " + id)
	}
	return i
}

// seconds reads "90" or "90s" as seconds of the shard's clock.
func seconds(v string) int64 { return number(strings.TrimSuffix(v, "s")) * engine.Second }

func (s *script) cluster(name string, words []string) {
	f, known := s.facts[name]
	if !known {
		f = demand.Facts{Heard: true, SharingPerMille: 1000}
	}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "heard":
			f.Heard = true
		case "silent":
			f.Heard = false
		case "sharing":
			f.SharingPerMille = int32(number(v))
		case "reports":
			f.ReportsReadiness = true
			if v != "" {
				f.ReportingSince = seconds(v)
			}
		case "join-drained":
			f.JoinDrained = int32(number(v))
		case "join-failures":
			f.JoinFailures = int32(number(v))
		case "overhead":
			s.over[name] = quantities(v)
		case "room": // type:amounts
			typ, amounts, _ := strings.Cut(v, ":")
			s.w.Demand.SetFacts(name, f)
			s.w.Demand.SetRooms(name, []demand.Room{{Type: typ, Amounts: quantities(amounts)}})
		default:
			panic("cluster: " + w)
		}
	}
	s.facts[name] = f
	s.w.Demand.SetFacts(name, f)
	s.replace(name)
}

// quantities reads "cpu:4,mem:16Gi".
func quantities(v string) []resource.Quantity {
	var out []resource.Quantity
	for part := range strings.SplitSeq(v, ",") {
		name, amount, _ := strings.Cut(part, ":")
		if m, err := quantity.Parse(amount, quantity.Up); err == nil || m > 0 {
			out = append(out, resource.Quantity{Name: name, Milli: m})
		} else {
			panic("quantity " + part)
		}
	}
	return out
}

var resources = map[string]bool{"pods": true, "attachable-volumes-csi-x": true, "cpu": true, "mem": true, "gpu": true, "disk": true, "x1": true, "x2": true, "x3": true}

func (s *script) need(alias string, words []string) {
	cluster, name, _ := strings.Cut(alias, "/")
	r := &scriptRow{cluster: cluster, arrival: int64(len(s.order) + 1)}
	if old := s.rows[alias]; old != nil {
		r = old // words change what was there
		s.names[demand.RowKey{Fingerprint: r.row.Fingerprint, Group: r.row.Group}] = slices.DeleteFunc(
			s.names[demand.RowKey{Fingerprint: r.row.Fingerprint, Group: r.row.Group}], func(a string) bool { return a == alias })
	} else {
		s.order = append(s.order, alias)
		r.row.RowID, r.row.Group = alias, name // the group keeps rows with equal profiles apart
	}
	set := func(list *[]resource.Quantity, q resource.Quantity) {
		*list = append(slices.DeleteFunc(slices.Clone(*list), func(x resource.Quantity) bool { return x.Name == q.Name }), q)
	}
	p := &r.row.Profile
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		label, rest, _ := strings.Cut(v, ":")
		values := slices.DeleteFunc(strings.Split(rest, ","), func(s string) bool { return s == "" })
		switch {
		case resources[k]:
			set(&r.row.Aggregate, quantities(k + ":" + v)[0])
		case k == "unit":
			r.row.MinUnit = quantities(v)
		case k == "priority":
			p.Priority = int32(number(v))
		case k == "interruption":
			p.Interruption = demand.Bucket(number(v))
		case k == "reclamation":
			p.Reclamation = demand.Bucket(number(v))
		case k == "in":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.In, Values: values})
		case k == "gt":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.Gt, Values: values})
		case k == "lt":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.Lt, Values: values})
		case k == "notin":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.NotIn, Values: values})
		case k == "exists":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.Exists})
		case k == "absent":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.DoesNotExist})
		case k == "same":
			p.Requirements = append(p.Requirements, demand.Requirement{Key: keyOf(label), Op: demand.Same, Values: values})
		case k == "spread":
			skew, least, _ := strings.Cut(rest, ",")
			term := demand.Spread{Key: keyOf(label), MaxSkew: int32(number(skew))}
			if least != "" {
				term.MinDomains = int32(number(least))
			}
			p.Spread = append(p.Spread, term)
		case k == "tolerate":
			p.TolerationsStated = true
			if label != "" {
				p.Tolerations = append(p.Tolerations, demand.Toleration{Key: label, Op: demand.TolerationExists})
			}
		case k == "prefer": // key:value,weight
			value, weight, _ := strings.Cut(rest, ",")
			p.Preferences = append(p.Preferences, demand.Preference{Weight: int32(number(weight)),
				Requirements: []demand.Requirement{{Key: keyOf(label), Op: demand.In, Values: []string{value}}}})
		case k == "per-host":
			p.MaxPerHost = int32(number(v))
		case k == "together":
			p.MinMembers = int32(number(v))
		case k == "never-preempts":
			p.NeverPreempts = true
		case k == "group":
			r.row.Group = v
		case k == "room":
			r.room = number(v)
		case k == "full": // values of its spread's key
			r.full = strings.Split(v, ",")
		case k == "own":
			r.own = number(v)
		case k == "arrival":
			r.arrival = number(v)
		case k == "hold":
			r.hold = map[string]demand.Hold{"none": 0, "parked": demand.HeldParked, "offline": demand.HeldOffline,
				"backoff": demand.HeldBootstrapBackoff}[v]
		default:
			panic("need: " + w)
		}
	}
	r.row.Seal()
	s.rows[alias] = r
	key := demand.RowKey{Fingerprint: r.row.Fingerprint, Group: r.row.Group}
	s.names[key] = append(s.names[key], alias)
	if _, ok := s.facts[cluster]; !ok {
		s.cluster(cluster, nil)
	}
	s.replace(cluster)
}

// keyOf spells out the two keys that machines have fields for.
func keyOf(k string) string {
	switch k {
	case "zone":
		return "topology.kubernetes.io/zone"
	case "type":
		return "node.kubernetes.io/instance-type"
	}
	return k
}

// replace sends the rows of one cluster, by arrival so that each keeps its own.
func (s *script) replace(cluster string) {
	var mine []*scriptRow
	for _, a := range s.order {
		if s.rows[a].cluster == cluster {
			mine = append(mine, s.rows[a])
		}
	}
	slices.SortStableFunc(mine, func(a, b *scriptRow) int { return int(a.arrival - b.arrival) })
	s.w.Demand.Replace(cluster, nil, s.over[cluster], 0) // arrivals are the script's to say
	for i := range mine {
		rows := make([]demand.Row, 0, i+1)
		for _, r := range mine[:i+1] {
			rows = append(rows, r.row)
		}
		s.w.Demand.Replace(cluster, rows, s.over[cluster], mine[i].arrival)
	}
	room, own, full := map[demand.RowKey]int64{}, map[demand.RowKey]int64{}, map[demand.RowKey][]string{}
	for _, r := range mine {
		k := demand.RowKey{Fingerprint: r.row.Fingerprint, Group: r.row.Group}
		room[k], own[k], full[k] = r.room, r.own, r.full
	}
	s.w.Demand.SetHeadroom(cluster, func(n *demand.Need) int64 { return room[n.RowKey()] })
	s.w.Demand.SetOwn(cluster, func(n *demand.Need) int64 { return own[n.RowKey()] })
	s.w.Demand.SetFull(cluster, func(n *demand.Need) []string { return full[n.RowKey()] })
	for _, r := range mine {
		s.w.Demand.SetHold(cluster, demand.RowKey{Fingerprint: r.row.Fingerprint, Group: r.row.Group}, r.hold)
	}
}

var stateWords = map[string]inventory.State{"speculative": inventory.Speculative, "creating": inventory.Creating, "idle": inventory.Idle,
	"configuring": inventory.Configuring, "configured": inventory.Configured, "draining": inventory.Draining,
	"deleting": inventory.Deleting, "failed": inventory.Failed}

var capacityWords = map[string]inventory.CapacityType{"bare-metal": inventory.BareMetal, "reserved": inventory.Reserved,
	"on-demand": inventory.OnDemand, "spot": inventory.Spot}

func (s *script) machine(id string, words []string) {
	m := inventory.Machine{ID: id, CapacityType: inventory.OnDemand}
	i, known := s.w.Inventory.Find(id)
	if known {
		m = s.w.Inventory.Machine(i)
		m.Labels, m.Taints, m.Resources = slices.Clone(m.Labels), slices.Clone(m.Taints), slices.Clone(m.Resources)
	}
	var after []func(i inventory.Index)
	later := func(f func(i inventory.Index)) { after = append(after, f) }
	attribution := inventory.Attribution{}
	attributed, clearAttribution := false, false
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if st, ok := stateWords[k]; ok {
			m.State, m.Cluster = st, ""
			if v != "" {
				m.Cluster = v
			}
			clearAttribution = !st.Bound() && st != inventory.Draining
			continue
		}
		if c, ok := capacityWords[k]; ok {
			m.CapacityType = c
			continue
		}
		if name, ok := strings.CutPrefix(k, "label."); ok {
			m.Labels = append(m.Labels, inventory.Label{Key: name, Value: v})
			continue
		}
		switch {
		case resources[k]:
			q := quantities(k + ":" + v)[0]
			m.Resources = append(slices.DeleteFunc(m.Resources, func(x resource.Quantity) bool { return x.Name == k }), q)
		case k == "price":
			f, _ := strconv.ParseFloat(v, 64)
			m.Price = inventory.PriceOfDollars(f)
		case k == "risk":
			f, _ := strconv.ParseFloat(v, 64)
			m.Probability = inventory.ProbabilityOf(f)
		case k == "drain": // usual duration in seconds
			seconds, _ := strconv.ParseInt(v, 10, 32)
			m.DrainSeconds = int32(seconds)
		case k == "type":
			m.InstanceType = v
		case k == "zone":
			m.Zone = v
		case k == "taint":
			key, effect, _ := strings.Cut(v, ":")
			if effect == "" {
				effect = demand.NoSchedule
			}
			m.Taints = append(m.Taints, inventory.Taint{Key: key, Effect: effect})
		case k == "for": // attributed to this Need, penalties and all
			r := s.rows[m.Cluster+"/"+v]
			if r == nil {
				panic("no need " + m.Cluster + "/" + v)
			}
			attribution, attributed = attributionOf(r), true
		case k == "attribution": // fingerprint:priority:interruption:reclamation, penalties in dollars
			f := strings.Split(v, ":")
			attribution, attributed = inventory.Attribution{Fingerprint: f[0], Priority: int32(number(f[1]))}, true
			if len(f) > 2 {
				attribution.Interruption = demand.Penalty(2 * number(f[2]))
				attribution.Reclamation = demand.Penalty(2 * number(f[3]))
			}
		case k == "promised", k == "reserved-for": // for a Need that bought it, or that preempted it
			p := inventory.Promise{Cause: inventory.ForCreate}
			if k == "reserved-for" {
				p.Cause = inventory.ForPreempt
			}
			p.Cluster, _, _ = strings.Cut(v, "/")
			if r := s.rows[v]; r != nil {
				p.For = attributionOf(r)
			} else {
				p.For = inventory.Attribution{Fingerprint: "f1-gone", Group: v}
			}
			later(func(i inventory.Index) { s.w.Inventory.SetPromise(i, &p) })
		case k == "unpromised":
			later(func(i inventory.Index) { s.w.Inventory.SetPromise(i, nil) })
		case k == "expires":
			later(func(i inventory.Index) {
				p, _ := s.w.Inventory.Promise(i)
				p.Expires = seconds(v)
				s.w.Inventory.SetPromise(i, &p)
			})
		case k == "withheld": // reason or reason:cluster
			reason, cluster, _ := strings.Cut(v, ":")
			r := map[string]inventory.WithheldReason{"backoff": inventory.WithheldBackoff, "stock-out": inventory.WithheldStockOut,
				"quota": inventory.WithheldQuota, "reserved": inventory.WithheldReserved,
				"not-joined": inventory.WithheldNotJoined}[reason]
			later(func(i inventory.Index) { s.w.Inventory.Withhold(i, inventory.Withheld{Reason: r, Cluster: cluster}) })
		case k == "offered":
			later(func(i inventory.Index) {
				for _, m := range slices.Clone(s.w.Inventory.Withheld(i)) {
					s.w.Inventory.Lift(i, m.Reason, m.Cluster)
				}
			})
		case k == "foreign":
			later(func(i inventory.Index) { s.w.Inventory.SetForeign(i, true) })
		case k == "leaving": // its drain cannot be stopped
			later(func(i inventory.Index) { s.w.Inventory.SetLeaving(i, true) })
		case k == "holds": // nothing, protected, or a class of the cost of disturbing it
			var o inventory.Occupancy
			switch v {
			case "nothing":
				o = inventory.OccupancyEmpty
			case "protected":
				o = inventory.OccupancyProtected
			default:
				o = inventory.OccupancyOf(int(number(v)))
			}
			later(func(i inventory.Index) { s.w.Inventory.SetOccupancy(i, o) })
		case k == "taken-back": // by its provider
			later(func(i inventory.Index) { s.w.Inventory.SetAnnounced(i, true) })
		case k == "stuck":
			later(func(i inventory.Index) { s.w.Inventory.SetStuck(i, v != "no") })
		case k == "since":
			later(func(i inventory.Index) { s.w.Inventory.SetSince(i, seconds(v)) })
		case k == "node":
			r := map[string]inventory.Readiness{"none": inventory.NoReport, "not-ready": inventory.NotReady, "ready": inventory.ReadyOnce,
				"lost": inventory.ReadyLost}[v]
			later(func(i inventory.Index) { s.w.Inventory.SetReadiness(i, r) })
		default:
			panic("machine: " + w)
		}
	}
	i, _ = s.w.Inventory.Put(m)
	if clearAttribution {
		s.w.Inventory.SetAttribution(i, nil)
	}
	if attributed {
		s.w.Inventory.SetAttribution(i, &attribution)
	}
	for _, f := range after {
		f(i)
	}
}

func attributionOf(r *scriptRow) inventory.Attribution {
	return inventory.Attribution{Fingerprint: r.row.Fingerprint, Group: r.row.Group, Priority: r.row.Profile.Priority,
		Interruption: r.row.Profile.Interruption.Penalty(), Reclamation: r.row.Profile.Reclamation.Penalty()}
}

func (s *script) setPolicy(words []string) {
	p := *s.policy
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "sharing":
			p.Sharing = v == "on"
		case "exchange":
			p.ExchangeTries = int(number(v))
		case "hold":
			p.Hold.OnDemand, p.Hold.Spot = seconds(v), seconds(v)
		case "workers":
			p.Workers, p.ParallelMin = int(number(v)), 0
		default:
			panic("policy: " + w)
		}
	}
	s.policy = &p
}
