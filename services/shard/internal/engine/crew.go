package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// workers is how many goroutines a plan may use (ENG-14.1).
func (p *planning) workers() int {
	if n := p.policy.Workers; n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// each does work that touches nothing but the cluster it is about, for every cluster of a list, on any number of
// goroutines (ENG-14.1). All have ended when it returns (ENG-14.7). Which goroutine does which cluster shows nowhere: no
// result depends on another cluster's. A cluster takes about ten microseconds, and on a busy machine a goroutine on another
// core may have to wait for longer than a steady plan takes: so one comes for every ParallelMin clusters.
func (p *planning) each(list []*clusterState, work func(cl *clusterState, x *scratch)) {
	per := max(1, p.policy.ParallelMin)
	n := min(p.workers(), (len(list)+per-1)/per)
	for len(p.crew) < n-1 {
		p.crew = append(p.crew, &scratch{})
	}
	if n <= 1 {
		for _, cl := range list {
			work(cl, &p.x)
		}
		return
	}
	var next atomic.Int64
	const batch = 4
	run := func(x *scratch) {
		for {
			to := int(next.Add(batch))
			from := to - batch
			if from >= len(list) {
				return
			}
			for _, cl := range list[from:min(to, len(list))] {
				work(cl, x)
			}
		}
	}
	var done sync.WaitGroup
	for i := range n - 1 {
		done.Go(func() { run(p.crew[i]) })
	}
	run(&p.x)
	done.Wait()
}
