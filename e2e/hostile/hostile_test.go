package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

const (
	// attackers send at a time; the machine has two processors, and the servers need them. Beside them are some that wait most of the time.
	attackers, waiters = 24, 8
	// callsMin is how many calls there are at least, however busy the machine is.
	callsMin = 10_000
	// patience is how long an honest caller may wait, repeating what was refused for a moment.
	patience = 60 * time.Second
	bombSize = 128 << 20
)

// environment reads a number with a default.
func environment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func compressed(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// slowly is a body whose end does not come for a while.
type slowly struct {
	ctx  context.Context
	head io.Reader
	wait time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	if n, err := s.head.Read(p); err == nil {
		return n, nil
	}
	select {
	case <-s.ctx.Done():
	case <-time.After(s.wait):
	}
	return 0, errors.New("the rest never comes")
}

// attack is one way to misuse an RPC.
type attack func(ctx context.Context, g *generator, method protoreflect.MethodDescriptor) request

// waits are the attacks whose callers wait: the request does not end for a while, or the server lets it wait for memory. Callers of their own make them, so
// that the others make more calls.
var waits = map[string]bool{"half": true, "a frame that lies": true, "bomb": true}

// attacks by name. Generated messages come most often.
func attacks() map[string]attack {
	bomb := compressed(hollow(bombSize))
	generated := func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
		r := framed(m, g.request(m), 0)
		if m.IsStreamingClient() { // a session of several frames
			frames := []io.Reader{r.data}
			for range g.IntN(20) {
				frames = append(frames, framed(m, g.request(m), 0).data)
			}
			r.data = io.MultiReader(frames...)
		}
		return r
	}
	return map[string]attack{
		"generated": generated, "generated again": generated, "generated once more": generated,
		"compressed": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			return zipped(m, compressed(g.request(m)))
		},
		"bomb": func(_ context.Context, _ *generator, m protoreflect.MethodDescriptor) request { return zipped(m, bomb) },
		"noise": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			data := make([]byte, g.IntN(10_000))
			for i := range data {
				data[i] = byte(g.Uint32())
			}
			return framed(m, data, byte(g.Uint32()))
		},
		"deep": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			return framed(m, deep(1+g.IntN(500_000)), 0)
		},
		"deep JSON": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			r := framed(m, []byte(strings.Repeat(`{"a":[`, 1+g.IntN(100_000))), 0)
			r.headers["Content-Type"] = strings.Replace(r.headers["Content-Type"], "proto", "json", 1)
			return r
		},
		"JSON": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			out := dynamicpb.NewMessage(m.Input())
			_ = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(g.request(m), out)
			data, _ := protojson.MarshalOptions{AllowPartial: true}.Marshal(out)
			r := framed(m, data, 0)
			r.headers["Content-Type"] = strings.Replace(r.headers["Content-Type"], "proto", "json", 1)
			return r
		},
		"half": func(ctx context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			r := generated(ctx, g, m)
			r.data = &slowly{ctx, r.data, time.Duration(g.IntN(3000)) * time.Millisecond}
			return r
		},
		"a frame that lies": func(ctx context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			r := framed(m, nil, 0)
			r.data = &slowly{ctx, bytes.NewReader([]byte{0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}), time.Second}
			return r
		},
		"gRPC": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			data := g.request(m)
			frame := append([]byte{0, byte(len(data) >> 24), byte(len(data) >> 16), byte(len(data) >> 8), byte(len(data))}, data...)
			return request{data: bytes.NewReader(frame), headers: map[string]string{"Content-Type": "application/grpc+proto", "TE": "trailers"}}
		},
		"headers": func(_ context.Context, g *generator, m protoreflect.MethodDescriptor) request {
			r := framed(m, g.request(m), 0)
			for _, h := range []string{"Connect-Timeout-Ms", "Connect-Protocol-Version", "Content-Encoding", "Connect-Content-Encoding", "Accept-Encoding", "X-Bigfleet", "Traceparent"} {
				if g.one(2) {
					r.headers[h] = []string{"9999999999999999999", "-1", "identity", "zstd", strings.Repeat("h", 30_000)}[g.IntN(5)]
				}
			}
			return r
		},
	}
}

func zipped(m protoreflect.MethodDescriptor, data []byte) request {
	r := framed(m, data, 1)
	if r.headers["Content-Type"] == "application/proto" {
		r.headers["Content-Encoding"] = "gzip"
	} else {
		r.headers["Connect-Content-Encoding"] = "gzip"
	}
	return r
}

// Hardening: callers of every kind of identity misuse every RPC for a while, and until 10,000 calls are made. Each program is killed meanwhile and starts again. BIGFLEET_HOSTILE_SECONDS says how long at
// least, BIGFLEET_HOSTILE_RATE how many calls there are a second at most instead of as many as are answered, and BIGFLEET_HOSTILE_SEED repeats what was sent, up to the order in which it arrives.
func TestHostileCallers(t *testing.T) {
	length := time.Duration(environment(t, "BIGFLEET_HOSTILE_SECONDS", 45)) * time.Second
	seed := environment(t, "BIGFLEET_HOSTILE_SEED", uint64(time.Now().Unix()))
	t.Logf("BIGFLEET_HOSTILE_SEED=%d", seed)
	s := newStage(t)
	methods := rpcs(t)
	ways := attacks()
	procedures := slices.Sorted(maps.Keys(methods))
	var active, waiting []string
	for _, kind := range slices.Sorted(maps.Keys(ways)) {
		if waits[kind] {
			waiting = append(waiting, kind)
		} else {
			active = append(active, kind)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), length+10*time.Minute)
	defer cancel()
	turn := turns(t)
	began := time.Now()
	var all sync.WaitGroup
	var sent, answers sync.Map
	var calls, oks atomic.Int64
	for i := range attackers + waiters {
		who := make([]*caller, len(callers)) // each with connections of its own
		for j, id := range callers {
			who[j] = s.caller(id)
		}
		kinds := active
		if i >= attackers {
			kinds = waiting
		}
		all.Go(func() {
			g := newGenerator(seed, uint64(i))
			for n := i; ctx.Err() == nil; n += attackers {
				kind, procedure, c := kinds[g.IntN(len(kinds))], procedures[g.IntN(len(procedures))], who[g.IntN(len(who))]
				if n < len(procedures) { // together they misuse each RPC once before chance decides
					procedure = procedures[n]
				}
				if service, name := tableRow(procedure); g.IntN(4) > 0 { // most of the time one that passes the first check
					may := access[service][name]
					c = who[slices.Index(callers, may[g.IntN(len(may))])]
				}
				method := methods[procedure]
				turn(ctx)
				one, done := context.WithTimeout(ctx, 10*time.Second)
				r := ways[kind](one, g, method)
				if !g.one(8) {
					r.look = 50 * time.Millisecond
				}
				got, err := c.call(one, s.addrs[served[string(method.Parent().FullName())]], procedure, r)
				done()
				sent.Store(procedure, true)
				if err == nil && got.broken() {
					t.Errorf("seed %d, %s, %s as %s: %s", seed, kind, procedure, c.id, got)
				}
				if err == nil && got.code == "ok" {
					oks.Add(1)
					answers.Store(procedure, true)
				}
				if calls.Add(1) >= callsMin && time.Since(began) >= length {
					cancel()
				}
			}
		})
	}
	honest := map[string]struct {
		procedure string
		id        identity.ID
	}{
		"coordinator": {api.CoordinatorAdminGetFleetStatusProcedure, readonly}, "shard": {api.ShardReadGetStatusProcedure, readonly},
		"provider": {api.CapacityProviderListProcedure, identity.ID{Kind: identity.Shard, Name: "shard-0"}},
	}
	for name, h := range honest {
		c := s.caller(h.id)
		all.Go(func() { s.askAgain(ctx, c, name, h.procedure, methods[h.procedure]) })
	}
	all.Go(func() { s.restarts(ctx, length/4) })
	all.Wait()
	for procedure := range methods {
		if _, ok := sent.Load(procedure); !ok {
			t.Errorf("no test misused %s", procedure)
		}
	}
	passed := 0
	answers.Range(func(any, any) bool { passed++; return true })
	t.Logf("%d calls of %d RPCs in %s; %d calls of %d RPCs had an answer and not an error", calls.Load(), len(methods), time.Since(began).Round(time.Second), oks.Load(), passed)
	if n := calls.Load(); n < callsMin {
		t.Errorf("%d calls were made, at least %d are wanted", n, callsMin)
	}
	s.unharmed()
}

// turns returns what a caller waits in before each call, so that all together make no more calls than BIGFLEET_HOSTILE_RATE says.
func turns(t *testing.T) func(context.Context) {
	t.Helper()
	rate := environment(t, "BIGFLEET_HOSTILE_RATE", 0)
	if rate == 0 {
		return func(context.Context) {}
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	t.Cleanup(tick.Stop)
	return func(ctx context.Context) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// restarts kills each program once, one after the other, and starts it again: what the callers do meanwhile must keep none from it.
func (s *stage) restarts(ctx context.Context, pause time.Duration) {
	for _, name := range []string{"provider", "shard", "coordinator"} {
		select {
		case <-ctx.Done():
			s.t.Errorf("the callers were done before %s was started again", name)
			return
		case <-time.After(pause):
		}
		s.unharmed()
		s.procs[name].Kill()
		began := time.Now()
		starting, done := context.WithTimeout(s.t.Context(), patience)
		err := s.procs[name].Start(starting)
		done()
		if err != nil {
			s.t.Errorf("%s does not start again among the callers: %v", name, err)
			return
		}
		s.t.Logf("%s is up again after %s", name, time.Since(began).Round(time.Millisecond))
	}
}

// askAgain makes a read of an honest caller ten times a second. Each must be answered within its patience.
func (s *stage) askAgain(ctx context.Context, c *caller, name, procedure string, method protoreflect.MethodDescriptor) {
	var took []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		for last := ""; ; time.Sleep(50 * time.Millisecond) {
			one, done := context.WithTimeout(s.t.Context(), patience)
			got, err := c.call(one, s.addrs[name], procedure, body(method, dynamicpb.NewMessage(method.Input())))
			done()
			if err == nil && got.code == "ok" {
				break
			}
			last = fmt.Sprint(got, err)
			if time.Since(began) > patience {
				s.t.Errorf("an honest caller of %s had no answer for %s: %s", name, patience, last)
				return
			}
		}
		took = append(took, time.Since(began))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		s.t.Logf("%s: %d honest calls, half within %s, the slowest %s", name, len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	}
}
