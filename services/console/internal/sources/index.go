package sources

import (
	"context"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const (
	indexFresh   = 10 * time.Second // names younger than this are not read again
	indexTimeout = 60 * time.Second // of one reading
	indexKeep    = 5 * time.Minute  // names are dropped when nobody searched for so long
	indexPage    = 5000
)

// Index holds the names of one shard's machines and nodes, while people search.
type Index struct {
	mu      sync.Mutex
	entries []Entry
	at      time.Time
	reading bool
	forget  *time.Timer
}

// Entry is one machine.
type Entry struct {
	ID, Node, Cluster, About string
	lower                    string // id and node, to look in
}

// Names are the machines of the shard. The first question waits for them; later ones get what is there, and new ones are read meanwhile.
func (s *Shard) Names(ctx context.Context) ([]Entry, error) {
	x := &s.index
	x.mu.Lock()
	entries, at := x.entries, x.at
	start := !x.reading && time.Since(at) > indexFresh
	if start {
		x.reading = true
	}
	if x.forget == nil {
		x.forget = time.AfterFunc(indexKeep, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.entries, x.at, x.forget = nil, time.Time{}, nil
		})
	} else {
		x.forget.Reset(indexKeep)
	}
	x.mu.Unlock()
	switch {
	case start && at.IsZero():
		return s.readNames(ctx)
	case start:
		go func() { _, _ = s.readNames(context.WithoutCancel(ctx)) }() // a failure leaves the old names, and the status says why
	}
	return entries, nil
}

func (s *Shard) readNames(ctx context.Context) (out []Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	defer func() {
		s.index.mu.Lock()
		defer s.index.mu.Unlock()
		if s.index.reading = false; err == nil {
			s.index.entries, s.index.at = out, time.Now()
		}
	}()
	req := &pb.ListMachinesRequest{PageSize: indexPage}
	for {
		got, err := s.Read.ListMachines(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, m := range got.Msg.GetMachines() {
			out = append(out, Entry{ID: m.GetMachine().GetId(), Node: m.GetNodeName(), Cluster: m.GetMachine().GetCluster(),
				About: m.GetMachine().GetInstanceType() + " in " + m.GetMachine().GetZone(), lower: strings.ToLower(m.GetMachine().GetId() + "\x00" + m.GetNodeName())})
		}
		if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
	}
}

// Holds says whether the id or the node's name holds part, in lower case.
func (e Entry) Holds(part string) bool { return strings.Contains(e.lower, part) }
