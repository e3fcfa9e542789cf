// Package order serves ShardAdmin: what a person may order of one shard.
//
// Each order is first judged by the core without changing anything, then stored if it must survive a restart, and only
// then given to the core for good, so that nothing is answered that a crash could undo (SHARD-5.4). One exception: a
// pause that cannot be stored takes effect at once, and the answer says that it will not survive.
//
// The package owns the numbering of open orders and the ids of pauses. It decides nothing and no order can bypass the
// reclaim gate, the reclaim budget or the superseded latch. Start at Server. Tests cite SHARD-24.
package order

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inspect"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

// Store keeps what must survive a restart.
type Store interface {
	Put(bucket, key string, value []byte) error
}

// Config is what a Server needs.
type Config struct {
	Loop  *loop.Loop
	Store Store
	View  func() *core.Publish
	Reads *inspect.Server
	Log   *slog.Logger
}

// Server implements ShardAdmin.
type Server struct {
	bigfleetv1alpha1connect.UnimplementedShardAdminHandler
	cfg    Config
	source *loop.Source

	mu    sync.Mutex
	next  int64
	open  map[int64]chan core.AdminAnswer
	order sync.Mutex // one order at a time goes through judge, store, apply
}

// New returns a server.
func New(c Config) *Server {
	return &Server{cfg: c, source: c.Loop.Source("orders", 64, false), open: map[int64]chan core.AdminAnswer{}}
}

// Access lets admins call; on plaintext, loopback peers (SHARD-22.5).
func Access() map[string]rpc.Access {
	out := map[string]rpc.Access{}
	for p := range rpc.AllowAll(bigfleetv1alpha1connect.ShardAdminName, rpc.AllowMutation(identity.Admin)) {
		out[p] = rpc.AllowMutation(identity.Admin)
	}
	return out
}

// Answer completes an order. It is called by the loop and never blocks.
func (s *Server) Answer(a core.AdminAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.open[a.Ask]; c != nil {
		delete(s.open, a.Ask)
		c <- a
	}
}

// ask gives one order to the core and waits for its answer.
func (s *Server) ask(ctx context.Context, e core.AdminAsked) (core.AdminAnswer, error) {
	c := make(chan core.AdminAnswer, 1)
	s.mu.Lock()
	s.next++
	e.Ask = s.next
	s.open[e.Ask] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.open, e.Ask)
		s.mu.Unlock()
	}()
	if !s.source.Push(ctx, e) {
		return core.AdminAnswer{}, rpc.NewError(connect.CodeUnavailable, "the shard is stopping")
	}
	select {
	case a := <-c:
		if a.Code != core.CodeOK {
			return a, rpc.NewError(connect.Code(a.Code), a.Text)
		}
		return a, nil
	case <-ctx.Done():
		return core.AdminAnswer{}, ctx.Err()
	}
}

// durable is one write that must be on the disk before the core sees the order.
type durable struct {
	bucket, key string
	value       []byte // nil: delete
}

// do judges, stores and applies an order.
func (s *Server) do(ctx context.Context, e core.AdminAsked, check bool, write *durable) (core.AdminAnswer, error) {
	var err error
	if e.Actor, err = actor(ctx); err != nil {
		return core.AdminAnswer{}, err
	}
	s.order.Lock()
	defer s.order.Unlock()
	if check || write != nil {
		probe := e
		probe.Check = true
		if a, err := s.ask(ctx, probe); err != nil || check {
			return a, err
		}
	}
	if write != nil {
		if err := s.cfg.Store.Put(write.bucket, write.key, write.value); err != nil {
			s.cfg.Log.Error("an order could not be stored and was not carried out", "command", e.Command.String(), "err", err)
			return core.AdminAnswer{}, rpc.NewError(connect.CodeUnavailable, "the order cannot be stored, so nothing was changed: "+err.Error())
		}
	}
	return s.ask(ctx, e)
}

// actorHeader names the person for whom an administrator gives an order: a console, which knows people by its proxy (WIRE-9.7). It adds a name
// to the record and no right.
const (
	actorHeader = "bigfleet-actor"
	actorMax    = 128 // bytes of the name
)

// actor names the author of an order: the certificate, and the person that it stands for.
func actor(ctx context.Context) (string, error) {
	p := rpc.PeerFrom(ctx)
	who := "plaintext " + p.String()
	if p.TLS {
		who = p.ID.String()
	}
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok || len(call.RequestHeader().Values(actorHeader)) == 0 {
		return who, nil
	}
	names := call.RequestHeader().Values(actorHeader)
	name := names[0]
	odd := strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
	if len(names) > 1 || name == "" || len(name) > actorMax || !utf8.ValidString(name) || odd {
		return "", rpc.NewError(connect.CodeInvalidArgument, fmt.Sprintf("the header %s is not a valid name: it must have 1 to %d bytes of printable UTF-8", actorHeader, actorMax))
	}
	return who + " for " + name, nil
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// pauseWrite builds the stored form of a pause.
func pauseWrite(p *core.Pause) *durable {
	return &durable{core.BucketPauses, p.ID, codec.Marshal(p)}
}

func unstored(p *core.Pause, err error) string {
	return fmt.Sprintf("paused, but the pause could not be stored and will be lost at a restart: %v", err)
}

func nowUnix() int64 { return time.Now().UnixNano() }
