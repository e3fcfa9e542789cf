package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

// Case is one behaviour being judged: its client, its machines, its dialogue.
type Case struct {
	Target
	ctx       context.Context
	suite     *suite
	behaviour behaviour
	client    bigfleetv1alpha1connect.CapacityProviderClient
	shard     string
	random    *rand.Rand
	dialogue  dialogue

	mu       sync.Mutex
	taken    map[string]bool // machines, and whether they were slots
	faults   []string
	evidence []string
	undo     []func()
}

// failf ends the behaviour as failed.
func (c *Case) failf(format string, args ...any) {
	panic(aborted{Fail, fmt.Sprintf(format, args...)})
}

// cannot ends the behaviour without a judgement.
func (c *Case) cannot(format string, args ...any) {
	panic(aborted{CannotJudge, fmt.Sprintf(format, args...)})
}

// excused ends the behaviour as not applicable, unless a fault was found before: what it judges is left to the provider
// (PROV-29.5), and this one leaves it out.
func (c *Case) excused(format string, args ...any) {
	panic(aborted{NotApplicable, fmt.Sprintf(format, args...)})
}

// check notes a fault and continues.
func (c *Case) check(ok bool, format string, args ...any) {
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.faults) < 20 {
			c.faults = append(c.faults, fmt.Sprintf(format, args...))
		}
	}
}

// note adds evidence to the report.
func (c *Case) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evidence = append(c.evidence, fmt.Sprintf(format, args...))
}

// States, without the prefix of the generated names.
const (
	speculative = lifecycle.Speculative
	creating    = lifecycle.Creating
	idle        = lifecycle.Idle
	configuring = lifecycle.Configuring
	configured  = lifecycle.Configured
	draining    = lifecycle.Draining
	deleting    = lifecycle.Deleting
	failed      = lifecycle.Failed
)

type (
	machine = bigfleetv1alpha1.Machine
	ack     = bigfleetv1alpha1.TransitionAck
	kind    = lifecycle.Kind
)

// fence is the token of one call.
type fence struct {
	shard           string
	epoch, sequence int64
}

// fresh is a token that no call had before.
func (c *Case) fresh() fence { return fence{c.shard, c.suite.epoch, c.suite.seq.Add(1)} }

// request is one mutation, whatever its kind.
type request struct {
	kind     kind
	machine  string
	fence    fence
	cluster  string
	metadata map[string]string
	blob     []byte
	grace    int64
}

// send sends a mutation through the case's own client.
func (c *Case) send(q request) (*ack, error) { return c.sendBy(c.client, q) }

func (c *Case) sendBy(client bigfleetv1alpha1connect.CapacityProviderClient, q request) (*ack, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	return c.sendIn(ctx, client, q)
}

// sendIn keeps the suite's own marks: what it concludes from answers is checked against them at the end.
func (c *Case) sendIn(ctx context.Context, client bigfleetv1alpha1connect.CapacityProviderClient, q request) (*ack, error) {
	f := q.fence
	var res *connect.Response[ack]
	var err error
	switch q.kind {
	case lifecycle.Create:
		res, err = client.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{
			MachineId: q.machine, ShardId: f.shard, ShardEpoch: f.epoch, SequenceNumber: f.sequence,
		}))
	case lifecycle.Configure:
		blob := q.blob
		if blob == nil {
			blob = c.Blob
		}
		res, err = client.Configure(ctx, connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{
			MachineId: q.machine, ClusterId: q.cluster, BootstrapBlob: blob, ShardMetadata: q.metadata,
			ShardId: f.shard, ShardEpoch: f.epoch, SequenceNumber: f.sequence,
		}))
	case lifecycle.Drain:
		res, err = client.Drain(ctx, connect.NewRequest(&bigfleetv1alpha1.DrainRequest{
			MachineId: q.machine, GracePeriodSeconds: q.grace, ShardId: f.shard, ShardEpoch: f.epoch, SequenceNumber: f.sequence,
		}))
	case lifecycle.Delete:
		res, err = client.Delete(ctx, connect.NewRequest(&bigfleetv1alpha1.DeleteRequest{
			MachineId: q.machine, ShardId: f.shard, ShardEpoch: f.epoch, SequenceNumber: f.sequence,
		}))
	}
	var answer *ack
	if err == nil {
		answer = res.Msg
	}
	c.dialogue.mutation(q, answer, err)
	c.learn(q, answer, err)
	return answer, err
}

// learn holds every answer against what must hold everywhere.
func (c *Case) learn(q request, a *ack, err error) {
	s := c.suite
	if a != nil {
		c.saw(a.GetMachine())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a != nil {
		s.used[q.machine] = true
		where := fmt.Sprintf("%s of %s", q.kind, q.machine)
		if before, known := s.operations[a.GetOperationId()]; known && before != where {
			s.collisions = append(s.collisions, fmt.Sprintf("operation id %q belongs to both %s and %s", a.GetOperationId(), before, where))
		}
		s.operations[a.GetOperationId()] = where
	}
	if q.machine == "" || q.fence == (fence{}) || len(q.machine) > 4096 || len(q.fence.shard) > 1024 {
		return
	}
	key, t := [2]string{q.fence.shard, q.machine}, token{q.fence.epoch, q.fence.sequence}
	mark, known := s.marks[key]
	newer := !known || lifecycle.Token{Epoch: t.epoch, Sequence: t.sequence}.Newer(lifecycle.Token{Epoch: mark.epoch, Sequence: mark.sequence})
	switch code := codeOf(err); {
	case code == connect.CodeFailedPrecondition:
		if newer && s.target.Hooks.Certs == nil && !c.behaviour.racing {
			s.miscoded = append(s.miscoded, fmt.Sprintf("%s on %s with token (%d, %d); its mark is (%d, %d), known: %v", q.kind, q.machine, t.epoch, t.sequence, mark.epoch, mark.sequence, known))
		}
	case code == connect.CodePermissionDenied, code == connect.CodeUnavailable, code == connect.CodeUnimplemented,
		code == connect.CodeDeadlineExceeded, code == connect.CodeCanceled, code == connect.CodeUnknown:
	case newer:
		s.marks[key] = t
	}
}

// ok is 0, for codeOf.
const ok connect.Code = 0

func codeOf(err error) connect.Code {
	if err == nil {
		return ok
	}
	return connect.CodeOf(err)
}

func codeName(code connect.Code) string {
	if code == ok {
		return "OK"
	}
	return strings.ToUpper(code.String())
}

// Sends with a fresh token.
func (c *Case) create(id string) (*ack, error) {
	return c.send(request{kind: lifecycle.Create, machine: id, fence: c.fresh()})
}
func (c *Case) configure(id, cluster string, metadata map[string]string) (*ack, error) {
	return c.send(request{kind: lifecycle.Configure, machine: id, fence: c.fresh(), cluster: cluster, metadata: metadata})
}
func (c *Case) drain(id string, grace int64) (*ack, error) {
	return c.send(request{kind: lifecycle.Drain, machine: id, fence: c.fresh(), grace: grace})
}
func (c *Case) delete(id string) (*ack, error) {
	return c.send(request{kind: lifecycle.Delete, machine: id, fence: c.fresh()})
}

// mutate sends kind with ordinary arguments.
func (c *Case) mutate(k kind, id string) (*ack, error) { return c.send(c.ordinary(k, id, c.fresh())) }

func (c *Case) ordinary(k kind, id string, f fence) request {
	return request{kind: k, machine: id, fence: f, cluster: c.Clusters[0], metadata: map[string]string{"purpose": c.behaviour.name}}
}

// get reads one machine; it must be there.
func (c *Case) get(id string) *machine {
	m, err := c.read(id)
	if err != nil {
		c.failf("Get %s: %v", id, err)
	}
	return m
}

// read reads one machine.
func (c *Case) read(id string) (*machine, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	res, err := c.client.Get(ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
	if err != nil {
		c.dialogue.reads("Get "+id, nil, err)
		return nil, err
	}
	c.dialogue.reads("Get "+id, res.Msg, nil)
	c.saw(res.Msg)
	return res.Msg, nil
}

// list lists machines; it must work.
func (c *Case) list(f *bigfleetv1alpha1.ListFilter) *bigfleetv1alpha1.MachineList {
	l, _ := c.listTimed(f)
	return l
}

// listTimed is list with the time that the call took: the suite's own checks of the records are not in it.
func (c *Case) listTimed(f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, time.Duration) {
	return c.listBy(c.client, f)
}

func (c *Case) listBy(client bigfleetv1alpha1connect.CapacityProviderClient, f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, time.Duration) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	begin := time.Now()
	res, err := client.List(ctx, connect.NewRequest(f))
	took := time.Since(begin)
	c.dialogue.listed(f, res, err)
	if err != nil {
		c.failf("List: %v", err)
	}
	for _, m := range res.Msg.GetMachines() {
		c.saw(m)
	}
	return res.Msg, took
}

// ceilingRounds is how often a time is taken before it counts as too long: other work of a moment is not a fault of the provider.
const ceilingRounds = 3

// ceiling checks the best of some rounds against its limit in PROV-25.11, stretched by the target's slack. A machine on which a bare handler,
// whose answers are about the machines of sample, is not much faster is too busy to judge by seconds, and the bare handler is the measure.
func (c *Case) ceiling(what string, limit time.Duration, sample func() []*machine, measure func(bigfleetv1alpha1connect.CapacityProviderClient) time.Duration) {
	limit = time.Duration(float64(limit) * c.Slack)
	var found []string
	for range ceilingRounds {
		took := measure(c.client)
		if took <= limit {
			return
		}
		floor := c.floor(sample(), measure)
		text := fmt.Sprintf("%s beside %s of a bare handler", took, floor)
		c.note("%s: %s", what, text)
		if took <= bareFactor*floor {
			return
		}
		found = append(found, text)
	}
	c.check(false, "%s took %s; the ceiling is %s, or %d times what a bare handler takes", what, strings.Join(found, ", then "), limit, bareFactor)
}

// saw checks a record wherever it comes from.
func (c *Case) saw(m *machine) {
	if m == nil {
		return
	}
	for _, why := range c.suite.faultsOf(m) {
		s := c.suite
		s.mu.Lock()
		if len(s.violations) < 50 {
			s.violations = append(s.violations, fmt.Sprintf("%s (seen in %s): %s", m.GetId(), c.behaviour.name, why))
		}
		s.mu.Unlock()
	}
	if m.GetState() == failed {
		c.suite.mu.Lock()
		c.suite.failedOnes[m.GetId()] = true
		c.suite.mu.Unlock()
	}
}
