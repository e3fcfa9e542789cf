package inspect

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// A read holds a place while it computes. A stream gives that back before it sends, and holds one of the places for streams, of
// which there are more: a reader that does not read keeps a stream, never a read (SHARD-23.1). Clusters are tenants, so a few
// places are always out of their reach, and one of them has fewer than all.

// share is how many places one kind of caller may hold.
type share struct{ one, all int }

// places are handed out until they are all held. Above, callers are refused, not queued.
type places struct {
	what              string
	max               int
	clusters, persons share

	mu    sync.Mutex
	held  map[identity.ID]int
	kinds map[bool]int // by whether the caller is a cluster
}

func newReads(most int) *places {
	return &places{what: "reads", max: most, clusters: share{max(1, most/4), max(1, most/2)}, persons: share{max(1, 3*most/4), most},
		held: map[identity.ID]int{}, kinds: map[bool]int{}}
}

func newStreams(most int) *places {
	return &places{what: "streams", max: most, clusters: share{max(1, most/32), max(1, most/4)}, persons: share{max(1, most/4), most},
		held: map[identity.ID]int{}, kinds: map[bool]int{}}
}

// take takes a place for the caller. Without TLS callers have no identity, and only the number of all places bounds them.
func (p *places) take(ctx context.Context) (free func(), err error) {
	id := rpc.PeerFrom(ctx).ID
	cluster := id.Kind == identity.Cluster
	most := p.persons
	if cluster {
		most = p.clusters
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !id.IsZero() && p.held[id] >= most.one:
		return nil, rpc.NewError(connect.CodeResourceExhausted, fmt.Sprintf("this certificate already has %d %s, which is the limit; end one, or retry shortly", most.one, p.what))
	case p.kinds[cluster] >= most.all || p.kinds[true]+p.kinds[false] >= p.max:
		return nil, rpc.NewError(connect.CodeResourceExhausted, fmt.Sprintf("too many concurrent %s on this shard; retry shortly", p.what))
	}
	p.held[id]++
	p.kinds[cluster]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kinds[cluster]--
		if p.held[id]--; p.held[id] == 0 {
			delete(p.held, id)
		}
	}, nil
}

// writePart is how much of an answer one write deadline covers.
const writePart = 256 << 10

// Paced ends an answer of which the caller takes nothing for so long. A slow caller that continues reading is served.
func Paced(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&pacedWriter{w, http.NewResponseController(w), patience}, r)
	})
}

type pacedWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) Write(b []byte) (n int, err error) {
	for first := true; first || len(b) > 0; first = false {
		w.extend()
		wrote, err := w.ResponseWriter.Write(b[:min(len(b), writePart)])
		n += wrote
		if err != nil {
			return n, err
		}
		b = b[wrote:]
	}
	return n, nil
}

// Flush is what package connect asks of a writer that streams.
func (w *pacedWriter) Flush() {
	w.extend()
	_ = w.control.Flush()
}

// extend is refused by transports without deadlines; there a reader that stalls keeps its stream.
func (w *pacedWriter) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.patience)) }
