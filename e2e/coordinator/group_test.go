package coordinator

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

const program = "services/coordinator/cmd/bigfleet-coordinator"

// group is three replicas, each a process, with a proxy in front of each Raft port.
type group struct {
	t     *testing.T
	procs []*proc.Process
	dirs  []string
	rpc   []string // addresses
	links *links
	fault []string // directories that package faulty reads

	identity *identity.Source // of who asks for the status; nil on plaintext
	direct   bool             // no proxies: a test that is busy itself would hold up the heartbeats that pass through them
}

func id(i int) string { return "node-" + strconv.Itoa(i) }

func newGroup(t *testing.T, extra ...string) *group { return newGroupOf(t, program, extra...) }

// newGroupOf starts a group of another program than the product's.
func newGroupOf(t *testing.T, program string, extra ...string) *group {
	t.Helper()
	return startGroup(t, &group{t: t}, program, extra...)
}

// startGroup starts the replicas of a group. {id} in an argument is the id of the replica.
func startGroup(t *testing.T, g *group, program string, extra ...string) *group {
	t.Helper()
	binary := proc.BuildT(t, program)
	ports, err := loopback.ReserveN(9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range ports {
			p.Release()
		}
	})
	g.links = newLinks(t)
	raft, ops := make([]string, 3), make([]string, 3)
	for i := range 3 {
		g.rpc = append(g.rpc, ports[i].Addr())
		raft[i], ops[i] = ports[3+i].Addr(), ports[6+i].Addr()
		g.dirs, g.fault = append(g.dirs, t.TempDir()), append(g.fault, t.TempDir())
	}
	for i := range 3 {
		name := raft[i]
		if !g.direct {
			name = g.links.front(id(i), raft[i])
		}
		args := append([]string{"--id", id(i), "--data-dir", g.dirs[i], "--listen", g.rpc[i], "--raft-bind", raft[i], "--raft-advertise", name,
			"--advertise-addr", g.rpc[i], "--metrics-addr", ops[i], "--bootstrap", "--bootstrap-expect", "3", "--admin-rate", "-1", "--log-level", "warn"}, extra...)
		for k := range 3 {
			args = append(args, "--peers", id(k)+"="+g.rpc[k])
		}
		for k := range args {
			args[k] = strings.ReplaceAll(args[k], "{id}", id(i))
		}
		p, err := proc.New(proc.Config{Name: id(i), Path: binary, Args: args, Env: []string{"BIGFLEET_FAULTS=" + g.fault[i]}, LogFile: t.TempDir() + "/" + id(i) + ".log", Ready: proc.HTTP("http://"+ops[i]+"/healthz", nil)})
		if err != nil {
			t.Fatal(err)
		}
		g.procs = append(g.procs, p)
		t.Cleanup(func() {
			p.Kill()
			if t.Failed() {
				t.Logf("the end of the log of %s:\n%s", id(i), p.Tail(40))
			}
		})
	}
	g.each(func(i int) { g.start(i) })
	g.healthy()
	return g
}

func (g *group) each(do func(i int)) {
	var all sync.WaitGroup
	for i := range g.procs {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func (g *group) start(i int) {
	if err := g.procs[i].Start(g.t.Context()); err != nil {
		g.t.Error(err)
	}
}

// dial returns a client of one replica.
func (g *group) dial(i int) *rpc.Client {
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: g.rpc[i], Identity: g.identity, Limits: rpc.ReadClientLimits(), DialTimeout: 2 * time.Second})
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// admin dials one replica.
func (g *group) admin(i int) (api.CoordinatorAdminClient, func()) {
	c := g.dial(i)
	return rpc.Stub(c, api.NewCoordinatorAdminClient), c.CloseIdle
}

func (g *group) status(i int) (*v1.GetCoordinatorStatusResponse, error) {
	c, done := g.admin(i)
	defer done()
	return status(g.t.Context(), c)
}

func status(ctx context.Context, c api.CoordinatorAdminClient) (*v1.GetCoordinatorStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	got, err := c.GetCoordinatorStatus(ctx, connect.NewRequest(&v1.GetCoordinatorStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return got.Msg, nil
}

// leader waits for the replica that leads, other than those named.
func (g *group) leader(but ...int) int {
	g.t.Helper()
	found := -1
	g.eventually("a leader", func() bool {
		for i := range g.procs {
			if slices.Contains(but, i) || !g.procs[i].Running() {
				continue
			}
			if s, err := g.status(i); err == nil && s.GetRole() == "leader" {
				found = i
				return true
			}
		}
		return false
	})
	return found
}

// healthy waits until all three are voters, follow one leader and hold the same state.
func (g *group) healthy() {
	g.t.Helper()
	g.eventually("three voters that agree", func() bool {
		leads := ""
		for i := range g.procs {
			s, err := g.status(i)
			if err != nil || s.GetLeader().GetLeaderId() == "" || leads != "" && s.GetLeader().GetLeaderId() != leads || s.GetRole() == "nonvoter" || len(s.GetPeers()) != 3 {
				return false
			}
			for _, p := range s.GetPeers() {
				if p.GetSuffrage() != "voter" {
					return false
				}
			}
			leads = s.GetLeader().GetLeaderId()
		}
		return true
	})
}

// agree waits until the replicas hold the same bytes at the same index (COORD-3.7).
func (g *group) agree() {
	g.t.Helper()
	g.eventually("equal states", func() bool {
		var first *v1.GetCoordinatorStatusResponse
		for i := range g.procs {
			s, err := g.status(i)
			if err != nil || first != nil && (s.GetAppliedIndex() != first.GetAppliedIndex() || s.GetStateHash() != first.GetStateHash()) {
				return false
			}
			first = s
		}
		return true
	})
}

func (g *group) eventually(what string, ok func() bool) {
	g.t.Helper()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("not within 90 s: %s", what)
		}
	}
}

// number reads a setting of a long run.
func number(t *testing.T, name string, short int) int {
	text := os.Getenv(name)
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// links are the Raft connections between the replicas: TCP that waits while its direction is cut.
type links struct {
	t       *testing.T
	mu      sync.Mutex
	cut     map[string]bool // "from>to"
	changed chan struct{}
}

func newLinks(t *testing.T) *links {
	return &links{t: t, cut: map[string]bool{}, changed: make(chan struct{})}
}

func (l *links) set(cut ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.cut)
	for _, c := range cut {
		l.cut[c] = true
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// open waits until a direction is open, or the connection ends.
func (l *links) open(way string, end <-chan struct{}) bool {
	for {
		l.mu.Lock()
		cut, changed := l.cut[way], l.changed
		l.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-changed:
		case <-end:
			return false
		}
	}
}

// front listens in front of a Raft port and returns where.
func (l *links) front(to, port string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	var all sync.WaitGroup
	end := make(chan struct{})
	l.t.Cleanup(func() {
		close(end)
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { l.pass(in, to, port, end) })
		}
	})
	return ln.Addr().String()
}

// pass carries one connection. Who dialled is in its first bytes.
func (l *links) pass(in net.Conn, to, port string, end <-chan struct{}) {
	defer in.Close()
	hello := make([]byte, 4096)
	_ = in.SetReadDeadline(time.Now().Add(5 * time.Second))
	n, err := in.Read(hello)
	if err != nil {
		return
	}
	_ = in.SetReadDeadline(time.Time{})
	from := dialler(hello[:n])
	out, err := net.Dial("tcp", port)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	var once sync.Once
	over := func() {
		once.Do(func() { close(done) })
		_ = in.Close()
		_ = out.Close()
	}
	defer over()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-end:
		case <-stop:
		}
		over()
	}()
	copyWhileOpen := func(dst, src net.Conn, way string, first []byte) {
		buf := make([]byte, 64<<10)
		for {
			if len(first) > 0 {
				if !l.open(way, done) {
					return
				}
				if _, err := dst.Write(first); err != nil {
					return
				}
			}
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			first = buf[:n]
		}
	}
	var both sync.WaitGroup
	both.Go(func() {
		copyWhileOpen(out, in, from+">"+to, hello[:n])
		over()
	})
	both.Go(func() {
		copyWhileOpen(in, out, to+">"+from, nil)
		over()
	})
	both.Wait()
}

// dialler reads the node id out of a hello: the magic, a kind, the group and the node, each text behind its length.
func dialler(hello []byte) string {
	const magic = "BIGFLEET-RAFT"
	if !strings.HasPrefix(string(hello), magic) || len(hello) < len(magic)+3 {
		return "?"
	}
	rest := hello[len(magic)+2:]
	for range 2 {
		n := int(rest[0])
		if len(rest) < n+2 {
			return "?"
		}
		text := string(rest[1 : 1+n])
		rest = rest[1+n:]
		if strings.HasPrefix(text, "node-") {
			return text
		}
	}
	return "?"
}

func token(client, n int) string { return fmt.Sprintf("c%d-%d", client, n) }
