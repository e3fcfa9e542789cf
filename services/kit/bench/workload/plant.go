package workload

import "math/rand/v2"

// planter binds machines to rows so that each row is covered by what it was given. It is how "95 % can be met" holds
// by construction and not by luck.
type planter struct {
	w        *World
	r        *rand.Rand
	used     []bool
	any      []int32   // the pool in random order
	byKind   [][]int32 // the same by kind, by zone, by rack
	byZone   [][]int32
	byRack   [][]int32
	leftOver int
}

func (w *World) plant(seed uint64) {
	p := &planter{w: w, r: Stream(seed, "demand/plant"), used: make([]bool, w.Fleet.Len())}
	rows := p.rows()
	p.pool(len(rows))
	share := p.shares(rows)
	// Forms that want particular machines choose first; plain rows take any.
	for _, form := range []Form{Same, Spread, Typed, Plain} {
		for n, row := range rows {
			if w.Demand.Form[row] == form {
				p.settle(row, p.choose(form, row, share[n]))
			}
		}
	}
	p.plantRest(rows)
	for row := range w.Demand.Rows() {
		if w.Demand.Form[row] == Impossible {
			p.impossible(int32(row))
		}
	}
	for i, state := range w.Fleet.State {
		if state == Draining {
			w.Fleet.Cluster[i] = int32(p.r.IntN(w.Demand.Clusters()))
		}
	}
}

// rows are those that shall be met, in random order.
func (p *planter) rows() []int32 {
	var out []int32
	for row, form := range p.w.Demand.Form {
		if form != Impossible {
			out = append(out, int32(row))
		}
	}
	p.r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// pool collects the machines to bind: what is Configured or Configuring and, where there are more rows than those,
// Idle and Speculative ones, which stay unbound and can be taken by the first plan.
func (p *planter) pool(rows int) {
	f := p.w.Fleet
	p.byKind, p.byZone, p.byRack = make([][]int32, len(f.Kinds)), make([][]int32, len(f.Zones)), make([][]int32, f.Racks)
	for _, states := range [][2]uint8{{Configured, Configuring}, {Idle, Idle}, {Speculative, Speculative}} {
		if len(p.any) > 0 && len(p.any) >= rows {
			break
		}
		for i, state := range f.State {
			if state == states[0] || state == states[1] {
				p.any = append(p.any, int32(i))
			}
		}
	}
	p.r.Shuffle(len(p.any), func(i, j int) { p.any[i], p.any[j] = p.any[j], p.any[i] })
	for _, i := range p.any {
		p.byKind[f.Kind[i]] = append(p.byKind[f.Kind[i]], i)
		p.byZone[f.Zone(int(i))] = append(p.byZone[f.Zone(int(i))], i)
		p.byRack[f.Rack[i]] = append(p.byRack[f.Rack[i]], i)
	}
	p.leftOver = len(p.any)
}

// shares says how many machines each row gets: one, and the rest by exponential weights, so that a few are large.
func (p *planter) shares(rows []int32) []int {
	weights, total := make([]float64, len(rows)), 0.0
	for n := range rows {
		weights[n] = p.r.ExpFloat64()
		total += weights[n]
	}
	spare := float64(max(0, len(p.any)-len(rows)))
	out := make([]int, len(rows))
	for n := range out {
		out[n] = 1 + int(weights[n]/total*spare)
	}
	return out
}

// take removes the next free machine of a list, or returns -1.
func (p *planter) take(list *[]int32) int32 {
	for len(*list) > 0 {
		i := (*list)[len(*list)-1]
		*list = (*list)[:len(*list)-1]
		if !p.used[i] {
			p.used[i] = true
			p.leftOver--
			return i
		}
	}
	return -1
}

func (p *planter) takeSome(list *[]int32, k int) []int32 {
	var out []int32
	for len(out) < k {
		i := p.take(list)
		if i < 0 {
			break
		}
		out = append(out, i)
	}
	return out
}

// choose takes up to k machines that suit the form; fewer where there are no more.
func (p *planter) choose(form Form, row int32, k int) []int32 {
	f := p.w.Fleet
	switch form {
	case Same:
		// A gang in a rack: at most what the rack has left, from the best of a few racks.
		best := p.r.IntN(f.Racks)
		for range 3 {
			if other := p.r.IntN(f.Racks); len(p.byRack[other]) > len(p.byRack[best]) {
				best = other
			}
		}
		return p.takeSome(&p.byRack[best], k)
	case Spread:
		var out []int32
		zone := p.r.IntN(len(f.Zones))
		for range k {
			i := p.take(&p.byZone[zone%len(f.Zones)])
			if i < 0 {
				break // an even spread ends where one zone ends
			}
			out = append(out, i)
			zone++
		}
		return out
	case Typed:
		first := p.take(&p.any)
		if first < 0 {
			return nil
		}
		out := []int32{first}
		kinds := p.alike(int(f.Kind[first]))
		for _, k := range kinds {
			p.w.Demand.Types[row] |= 1 << k
		}
		for len(out) < k {
			more := p.takeSome(&p.byKind[kinds[len(out)%len(kinds)]], 1)
			if len(more) == 0 {
				break
			}
			out = append(out, more...)
		}
		return out
	default:
		return p.takeSome(&p.any, k)
	}
}

// alike returns three kinds: the given one and two of the same family, so that a typed row is what people write ("any
// of these GPU types").
func (p *planter) alike(kind int) []int {
	family := kind / len(sizes) * len(sizes)
	out := []int{kind}
	for len(out) < 3 {
		if k := family + p.r.IntN(len(sizes)); k != out[0] && k != out[len(out)-1] {
			out = append(out, k)
		}
	}
	return out
}

// plantRest gives what the careful forms left to plain rows, so that nothing Configured is in excess.
func (p *planter) plantRest(rows []int32) {
	var plain []int32
	for _, row := range rows {
		if p.w.Demand.Form[row] == Plain {
			plain = append(plain, row)
		}
	}
	for p.leftOver > 0 && len(plain) > 0 {
		i := p.take(&p.any)
		if i < 0 {
			break
		}
		p.add(plain[p.r.IntN(len(plain))], i)
	}
	for _, row := range rows {
		p.finish(row)
	}
}

// settle binds machines to a row and sums what they offer.
func (p *planter) settle(row int32, machines []int32) {
	for _, i := range machines {
		p.add(row, i)
	}
}

func (p *planter) add(row, i int32) {
	f, d := p.w.Fleet, p.w.Demand
	k := f.Kinds[f.Kind[i]]
	if d.UnitCPU[row] == 0 || k.CPU < d.UnitCPU[row] {
		d.UnitCPU[row] = k.CPU
	}
	if d.UnitMemory[row] == 0 || k.Memory < d.UnitMemory[row] {
		d.UnitMemory[row] = k.Memory
	}
	d.CPU[row] += k.CPU
	d.Memory[row] += k.Memory
	if d.Form[row] == Typed {
		d.GPU[row] += k.GPU
	}
	if f.State[i] == Configured || f.State[i] == Configuring {
		f.Cluster[i], f.Need[i] = d.ClusterOf(row), row
	}
}

// finish turns what the machines of a row offer into what it asks for: 80 to 97 % of the sum, in units of a part of
// the smallest machine. A row that got no machine asks for one small Pod.
func (p *planter) finish(row int32) {
	d := p.w.Demand
	if d.CPU[row] == 0 {
		d.CPU[row], d.Memory[row], d.UnitCPU[row], d.UnitMemory[row] = 500, 1<<30, 500, 1<<30
		return
	}
	percent := int64(80 + p.r.IntN(18))
	part := int64(1) << p.r.IntN(4)
	d.CPU[row] = d.CPU[row] * percent / 100
	d.Memory[row] = d.Memory[row] / 100 * percent
	d.UnitCPU[row] = max(1, d.UnitCPU[row]*80/100/part)
	d.UnitMemory[row] = max(1, d.UnitMemory[row]/100*80/part)
	if d.GPU[row] > 0 {
		d.UnitGPU[row] = 1
	}
}

// impossible rows ask for a unit that no machine has, or for a type that no provider offers.
func (p *planter) impossible(row int32) {
	d := p.w.Demand
	d.CPU[row], d.Memory[row], d.UnitCPU[row], d.UnitMemory[row] = 4_000, 8<<30, 4_000, 8<<30
	if p.r.IntN(2) == 0 {
		d.CPU[row], d.UnitCPU[row] = 500_000, 500_000
	} else {
		d.Types[row] = noType
	}
}

// noType is the bit of an instance type that is in no catalogue.
const noType = 1 << 63
