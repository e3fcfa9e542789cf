package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// ProtocolVersion is the version that this major line speaks (OP-4.6).
const ProtocolVersion = "v1alpha1"

var errStopping = errors.New("the operator is stopping")

// Receiver is notified of what happens on the stream. All calls come from one goroutine and must return at once: they route,
// they never wait for the API server (OP-4.11).
type Receiver interface {
	// Opened is called when the stream is open and Hello is on its way.
	Opened(l *Link)
	// Receive is called for each frame, in order.
	Receive(l *Link, m *pb.ShardMessage)
	// Closed is called when the stream has ended, with the reason.
	Closed(l *Link, err error)
}

// State is what the stream looks like from outside.
type State struct {
	Connected            bool
	Since                time.Time // of Connected
	ShardID              string
	ShardVersion         string
	Refused              bool   // the last attempt was refused, not lost
	LastError            string // of the last attempt that ended
	Reconnects, Attempts int64
}

// Config is what a Client needs.
type Config struct {
	Shard      bigfleetv1alpha1connect.ShardClient // required; speaks gRPC, limits FrameBytesMax
	CloseIdle  func()                              // drops the connection below, so that the next dial resolves the address again
	Hello      *pb.Hello                           // required
	Receiver   Receiver                            // required
	Log        *slog.Logger                        // required
	BackoffMin time.Duration                       // 0 means 500 ms
	BackoffMax time.Duration                       // 0 means 30 s

	OnDrop      func()                           // a response or report was dropped
	OnReconnect func()                           // a stream that was open is lost
	OnState     func(State)                      // the state changed
	OnSent      func(r *pb.ClusterCapacityNeeds) // a roll-up was handed to the transport
}

// Values of Acknowledgement.echo (WIRE-6.10).
const (
	EchoHello    = "hello"
	EchoRollup   = "rollup"
	EchoHeld     = "rollup-held"
	EchoRejected = "rollup-rejected"
	EchoResynced = "node-state-resync-complete"
)

// Echo is the part of an acknowledgement's echo that counts.
func Echo(a *pb.Acknowledgement) string {
	echo, _, _ := strings.Cut(a.GetEcho(), ":")
	return echo
}

// Client keeps the stream.
type Client struct {
	Config
	link  atomic.Pointer[Link]
	state State        // of the goroutine of Run
	said  connect.Code // of the failure that was logged last; 0 while a session is open
	seen  atomic.Pointer[State]
}

// New checks the configuration. It dials nothing.
func New(c Config) (*Client, error) {
	if c.Shard == nil || c.Hello == nil || c.Receiver == nil || c.Log == nil {
		return nil, errors.New("session: Shard, Hello, Receiver and Log are required")
	}
	if c.BackoffMin <= 0 {
		c.BackoffMin = backoffMin
	}
	if c.BackoffMax <= 0 {
		c.BackoffMax = backoffMax
	}
	if c.OnDrop == nil {
		c.OnDrop = func() {}
	}
	return &Client{Config: c}, nil
}

// Link returns the stream that is open, or nil.
func (c *Client) Link() *Link { return c.link.Load() }

// State returns what the stream looks like now.
func (c *Client) State() State {
	if s := c.seen.Load(); s != nil {
		return *s
	}
	return State{}
}

func (c *Client) publish() {
	s := c.state
	c.seen.Store(&s)
	if c.OnState != nil {
		c.OnState(s)
	}
}

// Run keeps a stream until ctx ends. At the end responses that wait are flushed and the stream is closed cleanly.
func (c *Client) Run(ctx context.Context) error {
	backoff := c.BackoffMin
	for ctx.Err() == nil {
		start := time.Now()
		c.state.Attempts++
		err := c.one(ctx)
		if c.CloseIdle != nil {
			c.CloseIdle()
		}
		if ctx.Err() != nil {
			return nil
		}
		if c.state.Connected && time.Since(start) >= healthyAfter {
			backoff = c.BackoffMin
		}
		wait := time.Duration(rand.Int64N(int64(backoff) + 1)) // full jitter: after an outage operators must not come in step
		backoff = min(2*backoff, c.BackoffMax)
		if refused(err) {
			wait, backoff = c.BackoffMax, c.BackoffMax
		}
		c.lost(err)
		c.log(err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

func (c *Client) lost(err error) {
	if c.state.Connected {
		c.state.Reconnects++
		c.state.Since = time.Now()
		if c.OnReconnect != nil {
			c.OnReconnect()
		}
	}
	c.state.Connected, c.state.Refused, c.state.LastError = false, refused(err), err.Error()
	c.publish()
}

func (c *Client) log(err error, wait time.Duration) {
	attrs := []any{"code", connect.CodeOf(err).String(), "err", err, "retry_in", wait.Round(time.Millisecond)}
	said := connect.CodeOf(err)
	if said == c.said { // nothing new since the last line: one line for an outage, not one for each attempt (SHARD-30.1)
		c.Log.Debug("no session yet", attrs...)
		return
	}
	c.said = said
	if refused(err) {
		c.Log.Error("the shard refuses the session", attrs...)
		return
	}
	c.Log.Warn("no session with the shard; the operator retries until one opens", attrs...)
}

// refused says that asking again soon is useless: the answer depends on a configuration (OP-3.7, OP-4.6).
func refused(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeInvalidArgument, connect.CodeUnimplemented:
		return true
	}
	return false
}

// one runs one stream to its end.
func (c *Client) one(ctx context.Context) error {
	streaming, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stream := c.Shard.Session(streaming)
	if err := stream.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: c.Hello}}); err != nil {
		cancel(err)
		return sendError(stream, err)
	}
	link := newLink(c.OnDrop)
	c.link.Store(link)
	c.Receiver.Opened(link)

	var tasks sync.WaitGroup
	acked, received, sent := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	tasks.Go(func() { received <- c.receive(stream, link, acked) })
	tasks.Go(func() { sent <- c.send(ctx, streaming, stream, link) })
	err := c.watch(ctx, acked, received, sent)
	cancel(err)
	tasks.Wait() // both are over before the next dial (OP-4.2)
	c.link.Store(nil)
	link.close()
	c.Receiver.Closed(link, err)
	return err
}

// watch waits until one of the tasks fails or the operator stops. The error of the receiver is the better one: a failed
// send only says that the stream is gone.
func (c *Client) watch(ctx context.Context, acked chan struct{}, received, sent chan error) error {
	hello := time.NewTimer(helloWait)
	defer hello.Stop()
	for {
		select {
		case <-acked:
			acked = nil
			hello.Stop()
		case <-hello.C:
			return fmt.Errorf("the shard did not answer Hello within %v", helloWait)
		case err := <-received:
			return err
		case err := <-sent:
			if err == nil { // the operator stops: the shard sees the end of our half and ends its own
				err = errStopping
			}
			select {
			case err := <-received:
				return err
			case <-time.After(stopWait):
				return err
			}
		}
	}
}

type stream = connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]

// send writes frames until the stream ends or the operator stops.
func (c *Client) send(ctx, streaming context.Context, s *stream, link *Link) error {
	for ctx.Err() == nil {
		m := link.next()
		if m == nil {
			select {
			case <-ctx.Done():
			case <-streaming.Done():
				return context.Cause(streaming)
			case <-link.wake:
			}
			continue
		}
		if err := s.Send(m); err != nil {
			return err
		}
		if r := m.GetRollup(); r != nil && c.OnSent != nil {
			c.OnSent(r)
		}
	}
	for start := time.Now(); link.responsesWait() && time.Since(start) < stopWait; {
		if err := s.Send(link.next()); err != nil {
			return err
		}
	}
	return s.CloseRequest()
}

// receive reads frames until the stream ends.
func (c *Client) receive(s *stream, link *Link, acked chan struct{}) error {
	first := true
	for {
		m, err := s.Receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the shard closed the stream")
			}
			return err
		}
		if a := m.GetAck(); a != nil && Echo(a) == EchoHello {
			link.answered(a)
			if first {
				first = false
				close(acked)
				c.connected(a)
			}
		}
		c.Receiver.Receive(link, m)
	}
}

func (c *Client) connected(a *pb.Acknowledgement) {
	c.Log.Info("session open", "shard", a.ShardId, "version", a.ShardVersion,
		"epoch", a.ShardEpoch, "term", a.CoordinatorTerm, "features", a.Features)
	c.state.Connected, c.state.Since, c.state.Refused, c.state.LastError = true, time.Now(), false, ""
	c.said = 0
	c.state.ShardID, c.state.ShardVersion = a.ShardId, a.ShardVersion
	c.publish()
}

// sendError prefers what the shard says over the io.EOF of a failed send.
func sendError(s *stream, err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	if _, received := s.Receive(); received != nil {
		return received
	}
	return err
}
