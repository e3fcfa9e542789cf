package oracle

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// rules are an app's constraints in the form in which a packing asks for them; apps are numbers.
type rules struct {
	cpu, memory                              int64 // milli, MiB
	depth                                    int   // after how many others its Pods can be placed
	port                                     int32
	hostSkew, zoneSkew                       int // 0: none
	apartHost, apartZone, withZone, withHost []int
	on                                       map[*offering]bool // offerings whose nodes take its Pods
	onForeign                                map[int]bool
	domains                                  map[string]bool // zones that count for its skew
}

// bin is a machine with Pods in it.
type bin struct {
	of          *offering // nil: a node that others made
	foreign     int
	zone        string
	cpu, memory int64
	pods        int64
	holds       map[int]int
	fixed       bool // it is there already, and its Pods run
}

// packing is a set of machines for Pods under their constraints.
type packing struct {
	w      *world
	rules  []*rules
	bins   []*bin
	inZone map[string]map[int]int
	used   map[*offering]int
}

func (w *world) rulesOf() []*rules {
	number := map[string]int{}
	for i, a := range w.apps {
		number[a.name] = i
	}
	of := func(terms []corev1.PodAffinityTerm, key string) (out []int) {
		for _, t := range terms {
			if t.TopologyKey == key {
				out = append(out, number[t.LabelSelector.MatchLabels["app"]])
			}
		}
		return out
	}
	all := make([]*rules, len(w.apps))
	for i, a := range w.apps {
		req := a.pod.Spec.Containers[0].Resources.Requests
		r := &rules{cpu: req.Cpu().MilliValue(), memory: req.Memory().Value() >> 20, on: map[*offering]bool{}, onForeign: map[int]bool{}, domains: map[string]bool{}}
		if p := a.pod.Spec.Containers[0].Ports; len(p) > 0 {
			r.port = p[0].HostPort
		}
		for _, c := range a.pod.Spec.TopologySpreadConstraints {
			switch {
			case c.WhenUnsatisfiable != corev1.DoNotSchedule:
			case c.TopologyKey == corev1.LabelHostname:
				r.hostSkew = least(r.hostSkew, int(c.MaxSkew))
			default:
				r.zoneSkew = least(r.zoneSkew, int(c.MaxSkew))
			}
		}
		if f := a.pod.Spec.Affinity; f != nil && f.PodAntiAffinity != nil {
			r.apartHost = of(f.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.LabelHostname)
			r.apartZone = of(f.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.LabelTopologyZone)
		}
		if f := a.pod.Spec.Affinity; f != nil && f.PodAffinity != nil {
			r.withHost = of(f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.LabelHostname)
			r.withZone = of(f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.LabelTopologyZone)
		}
		for _, o := range slices.Concat(r.withHost, r.withZone) {
			if o != i {
				r.depth = max(r.depth, all[o].depth+1) // apps lean on earlier ones only
			}
		}
		for _, o := range w.offerings {
			if takes(o.node("n"), a) {
				r.on[o], r.domains[o.Zone] = true, true
			}
		}
		for n, node := range w.foreign {
			if takes(node, a) {
				r.onForeign[n], r.domains[node.Labels[corev1.LabelTopologyZone]] = true, true
			}
		}
		all[i] = r
	}
	for i, r := range all { // kube-scheduler keeps both sides of anti-affinity
		for _, o := range r.apartHost {
			if o != i && !slices.Contains(all[o].apartHost, i) {
				all[o].apartHost = append(all[o].apartHost, i)
			}
		}
	}
	return all
}

func least(a, b int) int {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// takes says whether an empty node takes a Pod of the app, by kube-scheduler's own library.
func takes(n *corev1.Node, a *app) bool {
	p := &corev1.Pod{ObjectMeta: a.pod.ObjectMeta, Spec: a.pod.Spec}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); !ok || err != nil {
		return false
	}
	_, tainted := corehelpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule }, true)
	return !tainted && (a.claim == "" || a.claim == n.Labels[corev1.LabelTopologyZone])
}

func (w *world) newPacking(all []*rules) *packing {
	p := &packing{w: w, rules: all, inZone: map[string]map[int]int{}, used: map[*offering]int{}}
	for _, z := range zones {
		p.inZone[z] = map[int]int{}
	}
	for i, n := range w.foreign {
		b := w.binOf(n)
		b.foreign = i
		p.bins = append(p.bins, b)
	}
	return p
}

func (w *world) binOf(n *corev1.Node) *bin {
	b := &bin{zone: n.Labels[corev1.LabelTopologyZone], cpu: n.Status.Allocatable.Cpu().MilliValue(),
		memory: n.Status.Allocatable.Memory().Value() >> 20, pods: n.Status.Allocatable.Pods().Value(), holds: map[int]int{}}
	if w.overhead != "" {
		q := resource.MustParse(w.overhead)
		b.cpu, b.pods = b.cpu-q.MilliValue(), b.pods-1
	}
	return b
}

func (p *packing) bin(o *offering) *bin {
	b := p.w.binOf(o.node("n"))
	b.of = o
	return b
}

// fits says whether a Pod of an app may go into a bin now.
func (p *packing) fits(app int, b *bin) bool {
	r := p.rules[app]
	if b.of != nil && !r.on[b.of] || b.of == nil && !r.onForeign[b.foreign] || r.cpu > b.cpu || r.memory > b.memory || b.pods < 1 {
		return false
	}
	if r.hostSkew > 0 && b.holds[app] >= r.hostSkew {
		return false
	}
	for _, o := range r.apartHost {
		if b.holds[o] > 0 {
			return false
		}
	}
	if r.port != 0 {
		for o, n := range b.holds {
			if n > 0 && p.rules[o].port == r.port {
				return false
			}
		}
	}
	return p.zoneAllows(app, b.zone) && p.beside(app, r.withHost, b.holds)
}

func (p *packing) zoneAllows(app int, zone string) bool {
	r := p.rules[app]
	here := p.inZone[zone]
	for _, o := range r.apartZone {
		if here[o] > 0 {
			return false
		}
	}
	if r.zoneSkew > 0 {
		fewest := 1 << 30
		for z := range r.domains {
			fewest = min(fewest, p.inZone[z][app])
		}
		if here[app]+1-fewest > r.zoneSkew {
			return false
		}
	}
	return p.beside(app, r.withZone, here)
}

// beside says whether the apps that a Pod leans on are in a domain; the first Pod of an app that leans on itself may go anywhere.
func (p *packing) beside(app int, on []int, domain map[int]int) bool {
	for _, o := range on {
		anywhere := 0
		for _, z := range p.inZone {
			anywhere += z[o]
		}
		if domain[o] == 0 && (o != app || anywhere > 0) {
			return false
		}
	}
	return true
}

func (p *packing) put(app int, b *bin, n int) {
	r := p.rules[app]
	b.holds[app] += n
	b.cpu, b.memory, b.pods = b.cpu-int64(n)*r.cpu, b.memory-int64(n)*r.memory, b.pods-int64(n)
	p.inZone[b.zone][app] += n
}

func (p *packing) price() (total float64, machines int) {
	for _, b := range p.bins {
		if b.of != nil {
			total, machines = total+b.of.Price, machines+1
		}
	}
	return total, machines
}

// pack places Pods in an order, opening bins by one of a few rules.
func (p *packing) pack(r *rand.Rand, order []int) bool {
	rule := r.IntN(4)
	for i, app := range order {
		b := p.open(r, rule, app, order[i:])
		if b == nil {
			return false
		}
		p.put(app, b, 1)
	}
	p.shrink()
	for _, b := range slices.Clone(p.bins) {
		if b.of != nil && !b.fixed {
			p.dissolve(b)
		}
	}
	p.shrink()
	return true
}

func (p *packing) open(r *rand.Rand, rule, app int, left []int) *bin {
	for _, b := range p.bins {
		if p.fits(app, b) {
			return b
		}
	}
	var best *bin
	var lowest float64
	for _, o := range p.w.offerings {
		b := p.bin(o)
		if p.used[o] >= o.Count || !p.fits(app, b) {
			continue
		}
		score := o.Price
		switch rule {
		case 1:
			score /= float64(b.cpu)
		case 2:
			score /= p.value(b, left)
		case 3:
			score *= r.Float64()
		}
		if best == nil || score < lowest {
			best, lowest = b, score
		}
	}
	if best != nil {
		p.bins, p.used[best.of] = append(p.bins, best), p.used[best.of]+1
	}
	return best
}

// value is what a new machine would hold of the Pods that are left, in dollars of an average machine.
func (p *packing) value(b *bin, left []int) (sum float64) {
	cpu, memory, pods := b.cpu, b.memory, b.pods
	for _, app := range left {
		r := p.rules[app]
		if r.on[b.of] && r.cpu <= cpu && r.memory <= memory && pods > 0 {
			cpu, memory, pods = cpu-r.cpu, memory-r.memory, pods-1
			sum += float64(r.cpu)*0.00003 + float64(r.memory)*0.000004
		}
	}
	return sum
}

// shrink gives each machine the cheapest type of its zone that holds what is in it.
func (p *packing) shrink() {
	for i, b := range p.bins {
		if b.of == nil || b.fixed {
			continue
		}
		for _, o := range p.w.offerings {
			other := p.bin(o)
			if o.Zone != b.zone || o.Price >= p.bins[i].of.Price || p.used[o] >= o.Count {
				continue
			}
			ok := true
			for app, n := range b.holds {
				r := p.rules[app]
				other.cpu, other.memory, other.pods = other.cpu-int64(n)*r.cpu, other.memory-int64(n)*r.memory, other.pods-int64(n)
				ok = ok && (n == 0 || r.on[o])
			}
			if ok && other.cpu >= 0 && other.memory >= 0 && other.pods >= 0 {
				p.used[p.bins[i].of]--
				p.used[o]++
				other.holds = maps.Clone(b.holds)
				p.bins[i] = other
			}
		}
	}
}

// dissolve moves the Pods of a machine to others and drops it, if all of them can move.
func (p *packing) dissolve(b *bin) {
	type move struct {
		app int
		to  *bin
	}
	var moves []move
	undo := func() {
		for _, m := range moves {
			p.put(m.app, m.to, -1)
			p.put(m.app, b, 1)
		}
	}
	for app, n := range maps.Clone(b.holds) {
		for range n {
			p.put(app, b, -1)
			to := slices.IndexFunc(p.bins, func(o *bin) bool { return o != b && p.fits(app, o) })
			if to < 0 || len(p.rules[app].withHost)+len(p.rules[app].withZone) > 0 {
				p.put(app, b, 1)
				undo()
				return
			}
			p.put(app, p.bins[to], 1)
			moves = append(moves, move{app, p.bins[to]})
		}
	}
	if !p.lawful() {
		undo()
		return
	}
	p.used[b.of]--
	p.bins = slices.DeleteFunc(p.bins, func(o *bin) bool { return o == b })
}

// lawful says that no app is spread worse than its skew: taking Pods out of a zone may do that.
func (p *packing) lawful() bool {
	for app, r := range p.rules {
		if r.zoneSkew == 0 {
			continue
		}
		fewest, most := 1<<30, 0
		for z := range r.domains {
			fewest, most = min(fewest, p.inZone[z][app]), max(most, p.inZone[z][app])
		}
		if most-fewest > r.zoneSkew {
			return false
		}
	}
	return true
}

// best searches for the cheapest machines for some Pods of each app. found is false when no try placed them all.
func (w *world) best(pods []int, patience time.Duration) (dollars float64, machines int, found bool) {
	all := w.rulesOf()
	r := rand.New(rand.NewPCG(w.seed, 15))
	for end := time.Now().Add(patience); time.Now().Before(end); {
		p := w.newPacking(all)
		if !p.pack(r, w.order(r, all, pods)) {
			continue
		}
		if price, n := p.price(); !found || price < dollars {
			dollars, machines, found = price, n, true
		}
	}
	return dollars, machines, found
}

// bestInWaves packs the first wave as cheaply as it can, and the second beside it.
func (w *world) bestInWaves(pods []int, patience time.Duration) (dollars float64, found bool) {
	waves := [2][]int{make([]int, len(pods)), make([]int, len(pods))}
	for i, a := range w.apps {
		waves[a.wave][i] = pods[i]
	}
	all, r := w.rulesOf(), rand.New(rand.NewPCG(w.seed, 16))
	var first *packing
	lowest := 0.0
	for end := time.Now().Add(patience / 2); time.Now().Before(end); {
		p := w.newPacking(all)
		if !p.pack(r, w.order(r, all, waves[0])) {
			continue
		}
		if price, _ := p.price(); first == nil || price < lowest {
			first, lowest = p, price
		}
	}
	if first == nil {
		return 0, false
	}
	for end := time.Now().Add(patience / 2); time.Now().Before(end); {
		p := first.extended()
		if !p.pack(r, w.order(r, all, waves[1])) {
			continue
		}
		if price, _ := p.price(); !found || price < dollars {
			dollars, found = price, true
		}
	}
	return dollars, found
}

// extended is a copy whose machines stay.
func (p *packing) extended() *packing {
	out := &packing{w: p.w, rules: p.rules, inZone: map[string]map[int]int{}, used: maps.Clone(p.used)}
	for z, held := range p.inZone {
		out.inZone[z] = maps.Clone(held)
	}
	for _, b := range p.bins {
		n := *b
		n.holds, n.fixed = maps.Clone(b.holds), true
		out.bins = append(out.bins, &n)
	}
	return out
}

// order is the Pods by depth, then by size with some noise, largest first.
func (w *world) order(r *rand.Rand, all []*rules, pods []int) (out []int) {
	size := map[int]float64{}
	noise := r.Float64() * 2
	for i, rule := range all {
		size[i] = max(float64(rule.cpu)/16000, float64(rule.memory)/65536) * (1 + noise*r.Float64())
		if len(rule.on) < len(w.offerings) {
			size[i] += noise * r.Float64() // what few machines take comes early
		}
	}
	for app, n := range pods {
		for range n {
			out = append(out, app)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[a].depth, all[b].depth), cmp.Compare(size[b], size[a]))
	})
	return out
}
