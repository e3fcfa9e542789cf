package conformance

import (
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
)

func walkBehaviours() []behaviour {
	return []behaviour{{
		name: "walk/random", profile: Core, hosts: 3,
		clauses: []string{"PROV-3.2", "PROV-3.4", "PROV-4.1", "PROV-4.3", "PROV-5.5", "PROV-7.2", "PROV-7.7", "PROV-8.1", "PROV-13.5"},
		says:    "answer random calls as the contract's state machine does, and keep the number of machines",
		do: func(c *Case) {
			count := len(c.list(&filter{}).GetMachines())
			w := &walk{c: c, models: map[string]*lifecycle.Record{}}
			for _, id := range c.idles(3) {
				w.models[id] = w.modelOf(c.get(id))
				w.ids = append(w.ids, id)
			}
			for range 150 {
				w.step()
			}
			for _, id := range w.ids {
				w.sync(id)
			}
			c.check(len(c.list(&filter{}).GetMachines()) == count, "the number of machines changed")
		},
	}}
}

// walk compares the target with the pure state machine of package lifecycle.
type walk struct {
	c      *Case
	ids    []string
	models map[string]*lifecycle.Record
}

// unlimited leaves the limits of a provider out of the model.
var unlimited = lifecycle.Rules{DeleteSupported: true, ShardIDBytesMax: 1 << 30, MetadataBytesMax: 1 << 40, BlobBytesMax: 1 << 40}

func (w *walk) modelOf(m *machine) *lifecycle.Record {
	shape, err := lifecycle.NewShape(lifecycle.Attributes{InstanceType: "t", Zone: "z", CapacityType: lifecycle.BareMetal})
	if err != nil {
		w.c.cannot("the model: %v", err)
	}
	return &lifecycle.Record{
		ID: m.GetId(), State: m.GetState(), Shape: shape, Host: lifecycle.Host{Provider: m.GetHost().GetProvider(), Ref: "model"},
		Cluster: m.GetCluster(), Metadata: m.GetShardMetadata(),
	}
}

// sync waits for the machine to rest and settles the model with it.
func (w *walk) sync(id string) {
	r := w.models[id]
	k := lifecycle.InFlight(r.State)
	if k == 0 {
		m := w.c.get(id)
		w.c.check(m.GetState() == r.State && m.GetCluster() == r.Cluster, "%s; the contract's state machine has %s for cluster %q", describe(m), name(r.State), r.Cluster)
		return
	}
	m := w.c.settles(id, k)
	next, _ := lifecycle.Settle(r, k, r.Operation(k), lifecycle.Result{Host: lifecycle.Host{Provider: "p", Ref: "model"}}, time.Now())
	w.models[id] = next
	w.c.check(m.GetCluster() == next.Cluster, "%s ended with cluster %q; the contract's state machine has %q", id, m.GetCluster(), next.Cluster)
	w.c.sameMetadata(id+" settled", next.Metadata, m)
}

func (w *walk) step() {
	c := w.c
	id := w.ids[c.random.IntN(len(w.ids))]
	k := c.kinds()[c.random.IntN(len(c.kinds()))]
	if c.random.IntN(2) == 0 {
		w.sync(id)
	}
	q := c.ordinary(k, id, c.fresh())
	q.cluster = c.Clusters[c.random.IntN(2)]
	q.metadata = map[string]string{"n": c.text(10)}
	asked := lifecycle.Request{Kind: k, MachineID: id, Cluster: q.cluster, Metadata: q.metadata}

	r := w.models[id]
	possible := []*lifecycle.Record{r}
	if flight := lifecycle.InFlight(r.State); flight != 0 { // it may have settled meanwhile
		settled, _ := lifecycle.Settle(r, flight, r.Operation(flight), lifecycle.Result{Host: lifecycle.Host{Provider: "p", Ref: "model"}}, time.Now())
		possible = append(possible, settled)
	}
	a, err := c.send(q)
	var last string
	for _, now := range possible {
		next, why := w.fits(now, asked, a, err)
		if why == "" {
			w.models[id] = next
			return
		}
		last = why
	}
	c.failf("%s of %s, which is %s in the contract's state machine: %s", k, id, name(r.State), last)
}

// fits says why an answer is not what the model would give, empty when it is; next is the model after it.
func (w *walk) fits(r *lifecycle.Record, q lifecycle.Request, a *ack, err error) (next *lifecycle.Record, why string) {
	d := lifecycle.Decide(r, nil, q, unlimited)
	code := codeOf(err)
	switch d.Outcome {
	case lifecycle.Start:
		if err != nil {
			return nil, "it was rejected: " + err.Error()
		}
		return lifecycle.Accept(r, q, a.GetOperationId(), time.Now()), ""
	case lifecycle.Repeat:
		if err != nil {
			return nil, "a repeat was rejected: " + err.Error()
		}
		if a.GetOperationId() != d.OperationID {
			return nil, "a repeat has operation id " + a.GetOperationId() + ", the first had " + d.OperationID
		}
		return r, ""
	}
	// An id from before the walk is not in the model: an OK that leaves the state alone is a repeat of that.
	atRest := r.State == q.Kind.Edge().To && r.Operation(q.Kind) == ""
	if code == ok && atRest && a.GetMachine().GetState() == r.State && (q.Kind != lifecycle.Configure || r.Cluster == q.Cluster) {
		known := *r
		known.Operations[q.Kind] = a.GetOperationId()
		return &known, ""
	}
	switch {
	case code == ok && q.Kind == lifecycle.Delete && r.State == speculative: // an OK that does nothing is allowed (PROV-5.4)
	case code == ok && q.Kind == lifecycle.Drain && r.State == idle:
	case code == ok:
		return nil, "it was accepted"
	case code == connect.CodeFailedPrecondition:
		return nil, "FAILED_PRECONDITION for a fresh token"
	case d.Reason == lifecycle.BoundElsewhere && code != connect.CodeAlreadyExists:
		return nil, codeName(code) + " for another cluster, not ALREADY_EXISTS"
	}
	return r, ""
}
