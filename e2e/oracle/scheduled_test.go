package oracle

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A packing may be one that kube-scheduler never finds: it spreads Pods over the Nodes that are there, and moves none of them. The searches of
// this file look for the cheapest machines on which a model of its scores places every Pod.

// plays is how many orders of arrival a set of machines has to serve. They are the same for all sets, so that no set is found by luck.
const plays = 8

// bestScheduled searches for the cheaper of two: machines that are there before the first Pod, and machines for the first wave with what is bought
// beside them for the second.
func (w *world) bestScheduled(pods []int, patience time.Duration) (dollars float64, found bool) {
	set, found := w.newSearch(pods, 17).cheapest(patience/2, once)
	waves, inWaves := w.bestScheduledInWaves(pods, patience/2)
	if inWaves && (!found || waves < price(set)) {
		return waves, true
	}
	return price(set), found
}

// once has all machines of a set there from the start.
func once(set []*offering) [2][]*offering { return [2][]*offering{set} }

func (w *world) bestScheduledInWaves(pods []int, patience time.Duration) (dollars float64, found bool) {
	firstPods := slices.Clone(pods)
	for i, a := range w.apps {
		if a.wave > 0 {
			firstPods[i] = 0
		}
	}
	first, found := w.newSearch(firstPods, 18).cheapest(patience/2, once)
	if !found {
		return 0, false
	}
	s := w.newSearch(pods, 19)
	s.fixed = first
	second, found := s.cheapest(patience/2, func(set []*offering) [2][]*offering { return [2][]*offering{first, set} })
	return price(first) + price(second), found
}

func price(set []*offering) (sum float64) {
	for _, o := range set {
		sum += o.Price
	}
	return sum
}

// search looks for a set of machines for some Pods of each app.
type search struct {
	w     *world
	rules []*rules
	pods  []int
	fixed []*offering // there already
	r     *rand.Rand
}

func (w *world) newSearch(pods []int, stream uint64) *search {
	return &search{w: w, rules: w.rulesOf(), pods: pods, r: rand.New(rand.NewPCG(w.seed, stream))}
}

// cheapest begins at packings, adds a machine for each app that finds no Node, and drops or replaces what is not needed.
func (s *search) cheapest(patience time.Duration, waves func([]*offering) [2][]*offering) (best []*offering, found bool) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		set, ok := s.start()
		if !ok {
			continue
		}
		if set, ok = s.repair(set, waves); !ok || found && price(set) >= price(best) {
			continue
		}
		best, found = s.improve(set, waves, end), true
	}
	return best, found
}

// repair adds a machine for each app of which a Pod finds no Node.
func (s *search) repair(set []*offering, waves func([]*offering) [2][]*offering) ([]*offering, bool) {
	for range 30 {
		failed := s.fails(waves(set))
		if failed < 0 {
			return set, true
		}
		o := s.cheapestFor(failed, set)
		if o == nil {
			return nil, false
		}
		set = append(set, o)
	}
	return nil, false
}

// start is the machines of a random packing.
func (s *search) start() (set []*offering, ok bool) {
	p := s.w.newPacking(s.rules)
	for _, o := range s.fixed {
		b := p.bin(o)
		b.fixed = true
		p.bins, p.used[o] = append(p.bins, b), p.used[o]+1
	}
	if !p.pack(s.r, s.w.order(s.r, s.rules, s.pods)) {
		return nil, false
	}
	for _, b := range p.bins {
		if b.of != nil && !b.fixed {
			set = append(set, b.of)
		}
	}
	return set, true
}

// improve drops machines and replaces them by cheaper ones while every Pod is placed.
func (s *search) improve(set []*offering, waves func([]*offering) [2][]*offering, end time.Time) []*offering {
	for again := true; again && time.Now().Before(end); {
		again = false
		for _, i := range s.r.Perm(len(set)) {
			if i >= len(set) {
				continue
			}
			if less := slices.Delete(slices.Clone(set), i, i+1); s.fails(waves(less)) < 0 {
				set, again = less, true
				continue
			}
			for _, o := range s.w.offerings {
				if o.Price >= set[i].Price || s.sold(o, set) >= o.Count {
					continue
				}
				other := slices.Clone(set)
				other[i] = o
				if s.fails(waves(other)) < 0 {
					set, again = other, true
				}
			}
		}
	}
	return set
}

func (s *search) sold(o *offering, set []*offering) (n int) {
	for _, x := range slices.Concat(s.fixed, set) {
		if x == o {
			n++
		}
	}
	return n
}

// cheapestFor is a machine that takes a Pod of an app: the cheapest of a random zone.
func (s *search) cheapestFor(app int, set []*offering) (best *offering) {
	p := s.w.newPacking(s.rules)
	zone := pick(s.r, zones)
	for _, o := range s.w.offerings {
		if s.sold(o, set) >= o.Count || !p.roomy(app, p.bin(o)) {
			continue
		}
		if best == nil || (o.Zone == zone) != (best.Zone == zone) && o.Zone == zone || (o.Zone == zone) == (best.Zone == zone) && o.Price < best.Price {
			best = o
		}
	}
	return best
}

// roomy says whether an empty bin takes a Pod of an app, beside no other.
func (p *packing) roomy(app int, b *bin) bool {
	r := p.rules[app]
	return r.on[b.of] && r.cpu <= b.cpu && r.memory <= b.memory
}

// fails is an app of which a Pod finds no Node in one of a few orders of arrival, or -1.
func (s *search) fails(sets [2][]*offering) int {
	for i := range plays {
		if app := s.place(sets, rand.New(rand.NewPCG(s.w.seed, uint64(i)))); app >= 0 {
			return app
		}
	}
	return -1
}

// place lets the model place all Pods, wave by wave. It returns the first app that has one without a Node.
func (s *search) place(sets [2][]*offering, r *rand.Rand) int {
	p := s.w.newPacking(s.rules)
	full := map[*bin]bin{}
	for _, b := range p.bins {
		full[b] = *b
	}
	for wave, set := range sets {
		for _, o := range set {
			b := p.bin(o)
			full[b] = *b
			p.bins = append(p.bins, b)
		}
		waiting := s.arrivals(wave, r)
		for before := -1; len(waiting) > 0 && len(waiting) != before; {
			before = len(waiting)
			waiting = slices.DeleteFunc(waiting, func(app int) bool {
				b := p.scored(r, app, full)
				if b == nil {
					return false
				}
				p.put(app, b, 1)
				return true
			})
		}
		if len(waiting) > 0 {
			return waiting[0]
		}
	}
	return -1
}

// arrivals are the Pods of a wave in the order in which kube-scheduler takes them: by priority, then app by app.
func (s *search) arrivals(wave int, r *rand.Rand) (out []int) {
	for _, app := range r.Perm(len(s.rules)) {
		if s.w.apps[app].wave == wave {
			for range s.pods[app] {
				out = append(out, app)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.w.apps[b].rank(), s.w.apps[a].rank()) })
	return out
}

func (a *app) rank() int {
	switch a.pod.Spec.PriorityClassName {
	case "urgent":
		return 1
	case "patient":
		return -1
	}
	return 0
}

// scored is the bin with the highest score of kube-scheduler's defaults: room that is left, balance, and the soft spread over hosts and zones of
// Pods that state no spread. Equal scores are drawn.
func (p *packing) scored(r *rand.Rand, app int, full map[*bin]bin) (best *bin) {
	var fit []*bin
	for _, b := range p.bins {
		if p.fits(app, b) {
			fit = append(fit, b)
		}
	}
	spread := p.spreadScores(app, fit)
	highest, equal := 0.0, 0
	for i, b := range fit {
		rule, all := p.rules[app], full[b]
		cpu := float64(b.cpu-rule.cpu) / float64(all.cpu)
		memory := float64(b.memory-rule.memory) / float64(all.memory)
		score := math.Floor(100*(cpu+memory)/2) + math.Floor(100*(1-math.Abs(cpu-memory)/2)) + 2*spread[i]
		if equal++; best == nil || score > highest {
			best, highest, equal = b, score, 1
		} else if score == highest && r.IntN(equal) == 0 {
			best = b
		} else if score < highest {
			equal--
		}
	}
	return best
}

// spreadScores are those of the default constraints: skew 3 over hosts, 5 over zones.
func (p *packing) spreadScores(app int, fit []*bin) []float64 {
	scores := make([]float64, len(fit))
	if len(p.w.apps[app].pod.Spec.TopologySpreadConstraints) > 0 || len(fit) == 0 {
		return scores
	}
	in := map[string]bool{}
	for _, b := range fit {
		in[b.zone] = true
	}
	host, zone := math.Log(float64(len(fit)+2)), math.Log(float64(len(in)+2))
	for i, b := range fit {
		scores[i] = math.Round(float64(b.holds[app])*host + 2 + float64(p.inZone[b.zone][app])*zone + 4)
	}
	lowest, highest := slices.Min(scores), slices.Max(scores)
	for i, s := range scores {
		scores[i] = 100
		if highest > 0 {
			scores[i] = math.Floor(100 * (highest + lowest - s) / highest)
		}
	}
	return scores
}

// Of two machines that hold the Pods of an app between them, kube-scheduler fills both evenly, so that a larger Pod of a second app finds no room on
// either: the packing has two machines, and the model needs a third.
func TestTheModelSpreadsPods(t *testing.T) {
	w := &world{seed: 1, offerings: []*offering{{Name: "o", InstanceType: "t", Zone: zones[0], Count: 10, Price: 1, Resources: map[string]string{"cpu": "8", "memory": "64Gi", "pods": "110"}}}}
	for i, cpu := range []string{"1", "7"} {
		a := &app{name: fmt.Sprint("app-", i), replicas: 4 - 3*i}
		a.pod.Labels = map[string]string{"app": a.name}
		a.pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}}}}
		w.apps = append(w.apps, a)
	}
	pods := []int{4, 1}
	if dollars, _, ok := w.best(pods, 100*time.Millisecond); !ok || dollars != 2 {
		t.Errorf("the best packing costs %g, %v, want 2", dollars, ok)
	}
	if dollars, ok := w.bestScheduled(pods, time.Second); !ok || dollars != 3 {
		t.Errorf("the machines that kube-scheduler fills cost %g, %v, want 3", dollars, ok)
	}
}
