package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// crewMin is how many clusters are worth one more goroutine. A cluster is credited in about ten microseconds; on a busy
// machine a goroutine on another core may have to wait for longer than a steady plan takes.
const crewMin = 128

// workers is how many goroutines a plan may use (ENG-14.2).
func (p *planning) workers() int {
	if n := p.policy.Workers; n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// each does work that touches nothing but the cluster it is about, for every cluster of a list, on any number of
// goroutines (ENG-14.1). All have ended when it returns (ENG-14.7). Which goroutine does which cluster shows nowhere: no
// result depends on another cluster's.
func (p *planning) each(list []*clusterState, work func(cl *clusterState, x *scratch)) {
	n := min(p.workers(), (len(list)+crewMin-1)/crewMin)
	if p.policy.Workers > 1 && len(list) > 1 && p.policy.ParallelMin <= 1 {
		n = min(p.policy.Workers, len(list)) // asked for, whatever it is worth
	}
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
