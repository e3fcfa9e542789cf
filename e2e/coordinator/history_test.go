package coordinator

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anishathalye/porcupine"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

const keys = 4

// input and output of one attempt at one register.
type input struct {
	key   string
	write string // empty: a read
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(input).key
			byKey[k] = append(byKey[k], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byKey {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		if w := in.(input).write; w != "" {
			return true, w
		}
		return out.(string) == state.(string), state
	},
}

// load is clients that write and read, and what they saw.
type load struct {
	g     *group
	start time.Time
	stop  chan struct{}
	all   sync.WaitGroup

	mu      sync.Mutex
	history []porcupine.Operation
	acked   map[string]bool // token -> acknowledged
	unknown int
	acks    []time.Duration // when writes were acknowledged, since start
	commits map[string]map[uint64]bool
}

func (g *group) load(writers, readers int) *load {
	l := &load{g: g, start: time.Now(), stop: make(chan struct{}), acked: map[string]bool{}, commits: map[string]map[uint64]bool{}}
	for n := range writers {
		l.all.Go(func() { l.client(n, true) })
	}
	for n := range readers {
		l.all.Go(func() { l.client(writers+n, false) })
	}
	return l
}

func key(n int) string { return fmt.Sprintf("register-%d", n) }

// client makes one attempt after the other at the replica that it believes to lead. It keeps its connections, as the
// clients of the product do.
func (l *load) client(who int, writes bool) {
	stubs := make([]api.CoordinatorAdminClient, len(l.g.procs))
	for i := range stubs {
		var leave func()
		stubs[i], leave = l.g.admin(i)
		defer leave()
	}
	at := -1
	random := rand.New(rand.NewPCG(1, uint64(who)))
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Duration(1+random.IntN(8)) * time.Millisecond):
		}
		if at < 0 {
			if at = find(stubs); at < 0 {
				continue
			}
		}
		var err error
		if writes {
			err = l.write(stubs[at], who, n, key(random.IntN(keys)))
		} else {
			err = l.read(stubs[at], who)
		}
		if err != nil {
			at = -1
		}
	}
}

// find asks each replica whether it leads; nothing of that is part of the history.
func find(stubs []api.CoordinatorAdminClient) int {
	for _, i := range rand.Perm(len(stubs)) {
		if s, err := status(context.Background(), stubs[i]); err == nil && s.GetRole() == "leader" {
			return i
		}
	}
	return -1
}

func (l *load) now() int64 { return int64(time.Since(l.start)) }

func (l *load) write(stub api.CoordinatorAdminClient, who, n int, key string) error {
	value := token(who, n)
	op := porcupine.Operation{ClientId: who, Input: input{key, value}, Call: l.now(), Return: math.MaxInt64}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := stub.UpsertProvider(ctx, connect.NewRequest(&v1.UpsertProviderRequest{Provider: &v1.ProviderRegistration{Name: key, Region: value}}))
	if rpc.NotSent(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		op.Return = l.now()
		l.acked[value] = true
		l.acks = append(l.acks, time.Duration(op.Return))
	} else {
		l.unknown++
	}
	l.history = append(l.history, op)
	return err
}

func (l *load) read(stub api.CoordinatorAdminClient, who int) error {
	call := l.now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got, err := stub.ListProviders(ctx, connect.NewRequest(&v1.ListProvidersRequest{}))
	if err != nil {
		return err // a read that failed says nothing
	}
	back := l.now()
	values := map[string]string{}
	for _, p := range got.Msg.GetProviders() {
		values[p.GetName()] = p.GetRegion()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range keys {
		l.history = append(l.history, porcupine.Operation{ClientId: who, Input: input{key: key(n)}, Output: values[key(n)], Call: call, Return: back})
	}
	return nil
}

// progress waits until a write that began after now is acknowledged, and returns how long the first one took from now.
func (l *load) progress(since time.Duration) time.Duration {
	l.g.t.Helper()
	var gap time.Duration
	l.g.eventually("a write after the fault", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, at := range l.acks {
			if at > since {
				gap = at - since
				return true
			}
		}
		return false
	})
	return gap
}

// audits reads the ring into the count of commits; the ring is shorter than a long run.
func (l *load) audits() {
	l.g.t.Helper()
	l.g.eventually("the audit is read", func() bool {
		stub, leave := l.g.admin(l.g.leader())
		defer leave()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		got, err := stub.ListAudit(ctx, connect.NewRequest(&v1.ListAuditRequest{PageSize: 10_000}))
		if err != nil {
			return false
		}
		for _, r := range got.Msg.GetRecords() {
			_, rest, found := strings.Cut(r.GetRequestJson(), `"region":"`)
			if !found {
				continue
			}
			value, _, _ := strings.Cut(rest, `"`)
			if l.commits[value] == nil {
				l.commits[value] = map[uint64]bool{}
			}
			l.commits[value][r.GetIndex()] = true
		}
		return true
	})
}

// check ends the load and judges the history: linearizable, every acknowledged write committed exactly once, and every
// other at most once.
func (l *load) check(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.all.Wait()
	l.audits()
	lost, twice := 0, 0
	for value := range l.acked {
		switch n := len(l.commits[value]); {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	for value, at := range l.commits {
		if !l.acked[value] && len(at) > 1 {
			twice++
		}
	}
	if lost > 0 || twice > 0 {
		t.Errorf("%d acknowledged writes are lost, %d were committed more than once", lost, twice)
	}
	t.Logf("%d attempts, %d writes acknowledged, %d with unknown outcome", len(l.history), len(l.acked), l.unknown)
	if len(l.acked) == 0 {
		t.Error("nothing was written")
	}
	switch porcupine.CheckOperationsTimeout(model, l.history, 2*time.Minute) {
	case porcupine.Illegal:
		t.Error("the history is not linearizable")
	case porcupine.Unknown:
		t.Error("the history could not be judged in time")
	}
}
