package inspect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

func caller(t *testing.T, kind identity.Kind, name string) context.Context {
	return rpc.WithPeer(t.Context(), rpc.Peer{TLS: true, ID: identity.ID{Kind: kind, Name: name}})
}

// SHARD-23.1: places are bounded by caller, for all clusters together, and for all callers. The place of one that ended is free.
func TestPlacesAreSharedFairly(t *testing.T) {
	p := newReads(8)
	take := func(ctx context.Context, n int) (ends []func()) {
		for range n {
			end, err := p.take(ctx)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		if _, err := p.take(ctx); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("one more than %d: %v", n, err)
		}
		return ends
	}
	red := take(caller(t, identity.Cluster, "red"), 2)
	take(caller(t, identity.Cluster, "blue"), 2)
	take(caller(t, identity.Cluster, "green"), 0) // all clusters have their part
	take(caller(t, identity.Admin, "ann"), 4)     // all places
	red[0]()
	take(caller(t, identity.Cluster, "green"), 1)
	p = newReads(8)
	take(caller(t, identity.Admin, "ann"), 6)
	take(caller(t, identity.ReadOnly, "bob"), 2)
	p = newReads(8)
	take(t.Context(), 8) // plaintext
}

// stalled is a reader that takes nothing.
type stalled struct {
	http.ResponseWriter
	blocked chan struct{} // receives for each write
	end     chan struct{}
}

func (w *stalled) Write(b []byte) (int, error) {
	w.blocked <- struct{}{}
	<-w.end
	return 0, io.ErrClosedPipe
}
func (w *stalled) Flush() {}

// SHARD-23.1: readers that take nothing of InspectNeeds and WatchDecisions, as many as there are reads, keep no other reader out.
func TestStalledReadersBlockNoOther(t *testing.T) {
	records := audit.New(audit.Config{})
	records.Record(&core.Record{Sequence: 1})
	s := New(Config{View: func() *core.Publish { return &core.Publish{} }, Records: records})
	_, handler := bigfleetv1alpha1connect.NewShardReadHandler(s)
	end, done, blocked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	calls := 0
	for procedure, body := range map[string]string{bigfleetv1alpha1connect.ShardReadInspectNeedsProcedure: `{}`,
		bigfleetv1alpha1connect.ShardReadWatchDecisionsProcedure: `{"fromSequence":"1","follow":true}`} {
		for range 20 {
			r := httptest.NewRequest(http.MethodPost, procedure, bytes.NewReader(append([]byte{0, 0, 0, 0, byte(len(body))}, body...))).WithContext(t.Context())
			r.Header.Set("Content-Type", "application/connect+json")
			go func() {
				handler.ServeHTTP(&stalled{httptest.NewRecorder(), blocked, end}, r)
				done <- struct{}{}
			}()
			calls++
			<-blocked
		}
	}
	for range 8 {
		if _, err := s.GetMachineHistory(t.Context(), connect.NewRequest(&pb.GetMachineHistoryRequest{})); err != nil {
			t.Error(err)
		}
	}
	close(end)
	for range calls {
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			case <-blocked: // connect tries to write the error
			}
		}
	}
	if n := len(s.streams.held); n != 0 {
		t.Errorf("%d callers hold streams that have ended", n)
	}
}

// SHARD-23.1: a read gives its place back however it ends, also when it asks for what is not kept.
func TestRefusedReadsHoldNoPlace(t *testing.T) {
	s := New(Config{View: func() *core.Publish { return &core.Publish{} }, Records: audit.New(audit.Config{})})
	_, handler := bigfleetv1alpha1connect.NewShardReadHandler(s)
	server := httptest.NewServer(handler)
	defer server.Close()
	c := bigfleetv1alpha1connect.NewShardReadClient(server.Client(), server.URL)
	for name, ask := range map[string]func() error{
		"needs of the past": func() error {
			answers, err := c.InspectNeeds(t.Context(), connect.NewRequest(&pb.InspectNeedsRequest{AtUnixNanos: 1}))
			if err != nil {
				return err
			}
			for answers.Receive() {
			}
			return errors.Join(answers.Err(), answers.Close())
		},
		"cycles of the past": func() error {
			_, err := c.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstCycle: 1, SecondCycle: 2}))
			return err
		},
		"costs of the past": func() error {
			_, err := c.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{SinceUnixNanos: 1}))
			return err
		},
		"a page that is none": func() error {
			_, err := c.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{PageToken: "x"}))
			return err
		},
	} {
		for range 20 {
			if err := ask(); err == nil || connect.CodeOf(err) == connect.CodeResourceExhausted {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if len(s.reads.held) != 0 || s.reads.kinds[false] != 0 {
		t.Errorf("reads that have ended are held: %v, %v", s.reads.held, s.reads.kinds)
	}
}

// SHARD-23.1: an answer ends when its reader takes nothing for a while, whatever the protocol. One who reads slowly gets all.
func TestPacedAnswers(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		ended, size := make(chan error, 2), 64<<20
		server := httptest.NewUnstartedServer(Paced(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, size))
			ended <- err
		}), 500*time.Millisecond))
		server.EnableHTTP2 = http2
		server.StartTLS()
		answer, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("HTTP/2 %v: all was sent to a reader that takes nothing", http2)
			}
		case <-time.After(time.Minute):
			t.Fatalf("HTTP/2 %v: a reader that takes nothing holds its answer", http2)
		}
		answer.Body.Close()
		size = 4 << 20
		if answer, err = server.Client().Get(server.URL); err != nil {
			t.Fatal(err)
		}
		n := 0
		for part := make([]byte, 1<<20); err == nil; { // 1 MiB each 200 ms
			time.Sleep(200 * time.Millisecond)
			var got int
			got, err = io.ReadFull(answer.Body, part)
			n += got
		}
		if n != size {
			t.Errorf("HTTP/2 %v: a slow reader got %d of %d, %v", http2, n, size, err)
		}
		answer.Body.Close()
		server.Client().CloseIdleConnections()
		server.Close()
	}
}
