package actuator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
)

// answering is a provider that answers List with a function and notes what was asked.
type answering struct {
	answer func(ctx context.Context, f *pb.ListFilter) (*pb.MachineList, error)

	mu    sync.Mutex
	asked []int32 // max_results of each call
}

func (p *answering) list(ctx context.Context, r *connect.Request[pb.ListFilter]) (*connect.Response[ingest.Answer], error) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Msg.MaxResults)
	p.mu.Unlock()
	l, err := p.answer(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	raw, err := proto.Marshal(l)
	if err != nil {
		return nil, err
	}
	out := &ingest.Answer{}
	return connect.NewResponse(out), out.Unmarshal(raw)
}

func slots(from, to int) *pb.MachineList {
	l := &pb.MachineList{Revision: fmt.Append(nil, to)}
	for i := from; i < to; i++ {
		l.Machines = append(l.Machines, &pb.Machine{Id: fmt.Sprintf("m-%03d", i), State: pb.MachineState_MACHINE_STATE_SPECULATIVE})
	}
	return l
}

// firstList runs the first List of a core over a provider, ten rows at a time, and returns how it ended and what the core knows.
func firstList(t *testing.T, p *answering, timeout time.Duration) (core.ListDone, int) {
	t.Helper()
	r := newRig(t, p.list, time.Hour, 10)
	defer r.stop()
	if timeout > 0 {
		r.actuator.list(core.ListMachines{List: 99, Provider: "p", Timeout: int64(timeout)})
	}
	for {
		select {
		case d := <-r.listed:
			if timeout > 0 && d.List != 99 {
				continue
			}
			n := 0
			r.loop.Source("test", 1, false).Visit(context.Background(), func() { n = len(r.core.Ids("", 1000)) })
			return d, n
		case <-time.After(time.Minute):
			t.Fatal("no List ended in a minute")
		}
	}
}

// SHARD-13.4, WIRE-7.15, PROV-10.12: the first answer of a provider shows whether the rest may be asked for page by page; where it
// does not, everything is asked for, and nothing is lost either way.
func TestTheFirstPageShowsHowToGoOn(t *testing.T) {
	const all = 35
	whole := func(_ context.Context, f *pb.ListFilter) (*pb.MachineList, error) { return slots(0, all), nil }
	cut := func(n int, mark func(*pb.MachineList, bool)) func(context.Context, *pb.ListFilter) (*pb.MachineList, error) {
		return func(_ context.Context, f *pb.ListFilter) (*pb.MachineList, error) {
			from, to := 0, n
			_, _ = fmt.Sscan(string(f.SinceRevision), &from)
			if f.MaxResults > 0 {
				to = min(n, from+int(f.MaxResults))
			}
			l := slots(from, to)
			mark(l, to < n)
			return l, nil
		}
	}
	for name, c := range map[string]struct {
		answer func(context.Context, *pb.ListFilter) (*pb.MachineList, error)
		rows   int
		asked  []int32
		paged  bool
	}{
		"pages, marked":            {cut(all, func(l *pb.MachineList, more bool) { l.More, l.Complete = more, true }), all, []int32{10, 10, 10, 10}, true},
		"pages, complete only":     {cut(all, func(l *pb.MachineList, _ bool) { l.Complete = true }), all, []int32{10, 10, 10, 10}, true},
		"a full page, no mark":     {cut(all, func(*pb.MachineList, bool) {}), all, []int32{10, 0}, false},
		"exactly a page, no mark":  {cut(10, func(*pb.MachineList, bool) {}), 10, []int32{10, 0}, false},
		"less than a page":         {cut(7, func(*pb.MachineList, bool) {}), 7, []int32{10}, false},
		"the cap is not respected": {whole, all, []int32{10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &answering{answer: c.answer}
			done, rows := firstList(t, p, 0)
			if done.Failed || !done.Complete || done.Paged != c.paged || rows != c.rows {
				t.Errorf("%+v, %d machines known", done, rows)
			}
			if fmt.Sprint(p.asked) != fmt.Sprint(c.asked) {
				t.Errorf("asked for %v rows, want %v", p.asked, c.asked)
			}
		})
	}
}

// SHARD-13.8, 13.17: a List that breaks or runs out of time after its first pages is a failed one, whatever was merged.
func TestAListThatEndsEarlyFails(t *testing.T) {
	broken := func(ctx context.Context, f *pb.ListFilter) (*pb.MachineList, error) {
		if len(f.SinceRevision) > 0 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("gone"))
		}
		l := slots(0, 10)
		l.More, l.Complete = true, true
		return l, nil
	}
	if done, rows := firstList(t, &answering{answer: broken}, 0); !done.Failed || done.Code != core.CodeUnavailable || rows != 10 {
		t.Errorf("broken: %+v, %d machines known", done, rows)
	}
	slow := func(ctx context.Context, f *pb.ListFilter) (*pb.MachineList, error) {
		l := slots(0, 10)
		if len(f.SinceRevision) > 0 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		l.More, l.Complete = true, true
		return l, nil
	}
	if done, _ := firstList(t, &answering{answer: slow}, 20*time.Millisecond); !done.Failed || done.Code != core.CodeDeadlineExceeded {
		t.Errorf("slow: %+v", done)
	}
}
