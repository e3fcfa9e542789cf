package planner

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// workers is the goroutines of a plan.
type workers struct {
	*plan
	own    scratch    // of the goroutine of the plan
	others []*scratch // of the others
}

func (ws *workers) begin() {
	ws.own.begin()
	for _, x := range ws.others {
		x.begin()
	}
}

// count is how many goroutines a plan may use (ENG-14.1).
func (ws *workers) count() int {
	if n := ws.policy.Workers; n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}

// rowsPerCluster is how many rows the clusters have on average that parallel_min is about.
const rowsPerCluster = 10

// countFor is how many goroutines work on a list. A cluster of ten rows takes about ten microseconds, and on a busy machine a
// goroutine on another core may have to wait for longer than a steady plan takes: so one comes for every ParallelMin of those.
func (ws *workers) countFor(list []*clusterState) int {
	most := ws.count()
	if most == 1 || len(list) == 1 {
		return 1
	}
	per, work := max(1, ws.policy.ParallelMin), 0
	for _, cl := range list {
		if work += max(1, len(cl.d.Needs)/rowsPerCluster); work >= most*per {
			break
		}
	}
	return min(most, len(list), (work+per-1)/per)
}

// each does work that touches nothing but the cluster it is about, for every cluster of a list, on any number of
// goroutines (ENG-14.1). All have ended when it returns (ENG-14.7). Which goroutine does which cluster shows nowhere: no
// result depends on another cluster's.
func (ws *workers) each(list []*clusterState, work func(cl *clusterState, x *scratch)) {
	n := ws.countFor(list)
	for len(ws.others) < n-1 {
		ws.others = append(ws.others, &scratch{})
	}
	if n <= 1 {
		for _, cl := range list {
			work(cl, &ws.own)
		}
		return
	}
	var next atomic.Int64
	batch := max(1, min(4, len(list)/(8*n)))
	run := func(x *scratch) {
		for {
			to := int(next.Add(int64(batch)))
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
		done.Go(func() { run(ws.others[i]) })
	}
	run(&ws.own)
	done.Wait()
}
