package sim

// event is something that happens at a time. The number orders what happens at the same time: first made, first run.
type event struct {
	at, n int64
	do    func()
}

// agenda is the one heap of events of a run.
type agenda struct {
	list []event
	n    int64
}

func (a *agenda) before(i, j int) bool {
	return a.list[i].at < a.list[j].at || a.list[i].at == a.list[j].at && a.list[i].n < a.list[j].n
}

func (a *agenda) add(at int64, do func()) {
	a.n++
	a.list = append(a.list, event{at, a.n, do})
	for i := len(a.list) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.before(i, up) {
			break
		}
		a.list[i], a.list[up] = a.list[up], a.list[i]
		i = up
	}
}

func (a *agenda) take() event {
	top := a.list[0]
	last := len(a.list) - 1
	a.list[0], a.list[last] = a.list[last], event{}
	a.list = a.list[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && a.before(down+1, down) {
			down++
		}
		if !a.before(down, i) {
			break
		}
		a.list[i], a.list[down] = a.list[down], a.list[i]
		i = down
	}
	return top
}
