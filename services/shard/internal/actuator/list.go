package actuator

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
)

// list reads machines and hands them over in pages (SHARD-13.4). While one answer is gated and merged, the next is asked for
// and decoded.
func (a *Actuator) list(e core.ListMachines) {
	ctx, cancel := context.WithTimeout(a.ctx, time.Duration(e.Timeout))
	defer cancel()
	start := time.Now()
	done := core.ListDone{List: e.List, Complete: len(e.Cursor) == 0}
	answers := make(chan answer)
	go a.scan(ctx, e, answers)
	batches := a.batches()
	for x := range answers {
		if done.Failed {
			continue // the next call of scan ends with ctx
		}
		if x.err != nil {
			done.Failed, done.Code, done.Error = true, codeOf(x.err), message(x.err)
			continue
		}
		l := x.list
		done.Paged = done.Paged || l.Complete || l.More
		done.Complete = l.Complete || len(e.Cursor) == 0
		done.Removed = append(done.Removed, l.RemovedIds...)
		done.Revision = l.Revision
		done.Seen += int64(len(l.Machines))
		if !a.handOver(ctx, e, l.Machines, batches) {
			done.Failed, done.Code, done.Error = true, core.CodeCanceled, "the shard is stopping"
			cancel()
		}
	}
	done.Duration = int64(time.Since(start))
	if a.ctx.Err() == nil {
		a.tell(e.Provider, done)
	}
	a.pages.Push(context.WithoutCancel(ctx), done)
}

// answer is one answer of a List, or the error that ended it.
type answer struct {
	list *pb.MachineList
	err  error
}

// scan sends the answers of a List and closes the channel. A provider that is not known to be paged is asked for one page of a
// full List: what marks its answer complete or more can be followed, what is shorter or longer than was asked for is all there
// is, and where neither is so, everything is asked for (WIRE-7.15).
func (a *Actuator) scan(ctx context.Context, e core.ListMachines, out chan<- answer) {
	defer close(out)
	filter := &pb.ListFilter{SinceRevision: e.Cursor}
	probing := !e.Paged && len(e.Cursor) == 0
	if e.Paged || probing {
		filter.MaxResults = int32(a.cfg.WireRows)
	}
	for {
		l, err := unwrap(a.clients[e.Provider].List(ctx, connect.NewRequest(filter)))
		if err != nil {
			out <- answer{err: err}
			return
		}
		if probing {
			probing = false
			if !l.Complete && !l.More {
				filter.MaxResults = 0
				if len(l.Machines) == a.cfg.WireRows {
					continue // perhaps a cut; any other number of rows is all there is
				}
			}
		}
		out <- answer{list: l} // list reads to the end
		if filter.MaxResults == 0 || !l.More && len(l.Machines) < a.cfg.WireRows {
			return
		}
		filter = &pb.ListFilter{MaxResults: filter.MaxResults, SinceRevision: l.Revision}
	}
}

// batches returns a Batch for each goroutine that gates.
func (a *Actuator) batches() []*ingest.Batch {
	out := make([]*ingest.Batch, runtime.GOMAXPROCS(0))
	for i := range out {
		out[i] = a.cfg.Gate.Batch()
	}
	return out
}

// handOver gates records in parallel and pushes them page by page, in the order of their ids: the core, which keeps machines by id,
// then works on neighbours. Of an id that comes twice the first stays the first.
func (a *Actuator) handOver(ctx context.Context, e core.ListMachines, machines []*pb.Machine, batches []*ingest.Batch) bool {
	machines = byID(machines)
	for len(machines) > 0 {
		n := min(len(machines), a.cfg.PageRows)
		if !a.pages.Push(ctx, gate(e, machines[:n], batches)) {
			return false
		}
		machines = machines[n:]
	}
	return true
}

// byID sorts machines by id, those of one id as they came.
func byID(machines []*pb.Machine) []*pb.Machine {
	type key struct {
		id string
		at int
	}
	keys := make([]key, len(machines))
	for i, m := range machines {
		keys[i] = key{m.GetId(), i}
	}
	slices.SortFunc(keys, func(x, y key) int { return cmp.Or(strings.Compare(x.id, y.id), cmp.Compare(x.at, y.at)) })
	out := make([]*pb.Machine, len(machines))
	for i, k := range keys {
		out[i] = machines[k.at]
	}
	return out
}

func gate(e core.ListMachines, machines []*pb.Machine, batches []*ingest.Batch) core.ListPage {
	facts := make([]core.Fact, len(machines))
	bad := make([]*ingest.Refused, len(machines))
	workers := len(batches)
	if len(machines) < 256 {
		workers = 1
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(machines); i += workers {
				facts[i], bad[i] = batches[w].Machine(machines[i])
			}
		})
	}
	wg.Wait()
	page := core.ListPage{List: e.List, Rows: make([]core.Fact, 0, len(machines))}
	for i := range machines {
		if bad[i] != nil {
			page.Rejected = append(page.Rejected, core.RejectedID{ID: machines[i].GetId(), Reason: bad[i].Reason, Text: bad[i].Text})
			continue
		}
		facts[i].Machine.Provider = e.Provider
		page.Rows = append(page.Rows, facts[i])
	}
	return page
}
