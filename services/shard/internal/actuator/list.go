package actuator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
	err := a.claimEpoch(ctx, e.Provider)
	if errors.Is(err, errSame) {
		done := core.ListDone{List: e.List, Failed: true, Code: core.CodeInvalidArgument, Error: err.Error()}
		a.deliver(e.Provider, done)
		a.pages.Push(context.WithoutCancel(ctx), done)
		return
	}
	if err != nil { // the List continues: reads are not fenced
		a.cfg.Log.Debug("the epoch is not claimed yet", "provider", e.Provider, "err", err)
	}
	done := core.ListDone{List: e.List, Complete: len(e.Cursor) == 0}
	answers := make(chan answer)
	go a.scan(ctx, e, answers)
	batch := a.batch(e.Provider)
	defer a.idle.Store(e.Provider, batch)
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
		done.Removed = append(done.Removed, l.Removed...)
		done.Revision = l.Revision
		done.Seen += int64(len(l.Records))
		if err := a.handOver(ctx, e, l.Records, batch); err != nil {
			done.Failed, done.Code, done.Error = true, codeOf(err), message(err)
			cancel()
		}
	}
	done.Duration = int64(time.Since(start))
	if a.ctx.Err() == nil {
		a.deliver(e.Provider, done)
	}
	a.pages.Push(context.WithoutCancel(ctx), done)
}

// answer is one answer of a List, or the error that ended it.
type answer struct {
	list *ingest.Answer
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
				if len(l.Records) == a.cfg.WireRows {
					continue // perhaps a cut; any other number of rows is all there is
				}
			}
		}
		out <- answer{list: l} // list reads to the end
		if filter.MaxResults == 0 || !l.More && len(l.Records) < a.cfg.WireRows {
			return
		}
		filter = &pb.ListFilter{MaxResults: filter.MaxResults, SinceRevision: l.Revision}
	}
}

// batch returns what is known of the records of a provider, for one List at a time.
func (a *Actuator) batch(provider string) *ingest.Batch {
	if b, known := a.idle.LoadAndDelete(provider); known {
		return b.(*ingest.Batch)
	}
	return a.cfg.Gate.Batch()
}

// handOver gates records and pushes them page by page, in the order of their ids: the core, which keeps machines by id, then works
// on neighbours. Of an id that comes twice the first stays the first.
func (a *Actuator) handOver(ctx context.Context, e core.ListMachines, records []ingest.Record, batch *ingest.Batch) error {
	records = byID(records)
	for len(records) > 0 {
		n := min(len(records), a.cfg.PageRows)
		page, err := gate(e, records[:n], batch)
		if err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
		if !a.pages.Push(ctx, page) {
			return connect.NewError(connect.CodeCanceled, errors.New("the shard is stopping"))
		}
		records = records[n:]
	}
	return nil
}

// byID sorts records by id, those of one id as they came.
func byID(records []ingest.Record) []ingest.Record {
	type key struct {
		head uint64 // of the id, as a number
		at   int
	}
	keys := make([]key, len(records))
	for i, r := range records {
		var head [8]byte
		copy(head[:], r.ID())
		keys[i] = key{binary.BigEndian.Uint64(head[:]), i}
	}
	slices.SortFunc(keys, func(x, y key) int {
		if x.head != y.head {
			return cmp.Compare(x.head, y.head)
		}
		return cmp.Or(bytes.Compare(records[x.at].ID(), records[y.at].ID()), cmp.Compare(x.at, y.at))
	})
	out := make([]ingest.Record, len(records))
	for i, k := range keys {
		out[i] = records[k.at]
	}
	return out
}

func gate(e core.ListMachines, records []ingest.Record, batch *ingest.Batch) (core.ListPage, error) {
	page := core.ListPage{List: e.List, Rows: make([]core.Fact, 0, len(records))}
	for _, r := range records {
		f, refused, err := batch.Record(r)
		switch {
		case err != nil:
			return page, fmt.Errorf("a record of the List cannot be read: %w", err)
		case refused != nil:
			page.Rejected = append(page.Rejected, core.RejectedID{ID: f.Machine.ID, Reason: refused.Reason, Text: refused.Text})
		default:
			f.Machine.Provider = e.Provider
			page.Rows = append(page.Rows, f)
		}
	}
	return page, nil
}
