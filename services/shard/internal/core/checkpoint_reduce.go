package core

// What the decision log keeps of an event is enough to take the same step again, and no more (SHARD-28.2): a roll-up
// that changed nothing is its hash, a List is the rows that meant something and the ids that were missing. The core
// collects that while it steps, because only it knows.

// reducer is the reduced form of the event of this step.
type reducer struct {
	page *ListPage
	done *ListDone
}

// keepRow notes a row of a List that did more than confirm what is known.
// As long as that holds of all of them, they are the page's own and are not copied: in a first List it holds of every one.
func (r *reducer) keepRow(rows []Fact, k int) {
	switch {
	case r.page == nil:
	case len(r.page.Rows) == k:
		r.page.Rows = rows[: k+1 : k+1]
	default:
		r.page.Rows = append(r.page.Rows, rows[k])
	}
}

// keepRejected notes a record that the core itself refused.
func (r *reducer) keepRejected(x RejectedID) {
	if r.page != nil {
		r.page.Rejected = append(r.page.Rejected, x)
	}
}

// Reduced returns what the decision log has to keep of the event that was just applied. Call it once, before the next
// Step, with that event.
func (c *Core) Reduced(e Event) Event {
	switch e := e.(type) {
	case RollupArrived:
		if c.open != nil { // it becomes demand later
			return e
		}
		if cl := c.clusters.get(e.Cluster); e.Reject == nil && cl != nil && cl.staged == nil && cl.Queued == nil && cl.Disposition == DispositionUnchanged && cl.Arrival == e.Arrival {
			e.Rows, e.Overhead, e.Rooms, e.LabelKeys, e.TopologyKeys = nil, nil, nil, nil, nil
		}
		return e
	case ListPage:
		if c.reconciler.reduced.page != nil {
			return *c.reconciler.reduced.page
		}
		return ListPage{List: e.List}
	case ListDone:
		if c.reconciler.reduced.done != nil {
			return *c.reconciler.reduced.done
		}
	}
	return e
}
