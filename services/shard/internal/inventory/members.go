package inventory

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"

// clusterMembers is what counts for one cluster: machines bound to it or in flight for it, in no order.
type clusterMembers struct {
	list    []Index
	version uint64
	avoided []Index // free machines withheld for this cluster alone
}

// member returns the cluster that the machine is bound to or in flight for.
func (t *Table) member(i Index) (symbol.ID, bool) {
	r := t.rows.at(i)
	switch {
	case r.Bound():
		return r.Cluster, true
	case r.InFlight():
		id, _ := t.space.Clusters.Find(t.promises[i].Cluster)
		return id, true
	}
	return 0, false
}

func (t *Table) clusterOf(id symbol.ID) *clusterMembers {
	for int(id) >= len(t.clusters) {
		t.clusters = append(t.clusters, clusterMembers{})
	}
	return &t.clusters[id]
}

// touch advances the version of the cluster that counts the machine.
func (t *Table) touch(i Index) {
	t.version++
	if id, ok := t.member(i); ok {
		t.clusterChanged(id)
	}
}

// clusterChanged advances the version of a cluster and remembers that it did.
func (t *Table) clusterChanged(id symbol.ID) *clusterMembers {
	m := t.clusterOf(id)
	m.version = t.version
	l := &t.clusterLog
	if n := len(l.list); n > 0 && l.list[n-1] == id {
		return m
	}
	if len(l.list) == logMax {
		n := copy(l.list, l.list[logMax/2:])
		l.list = l.list[:n]
		l.base += logMax / 2
	}
	l.list = append(l.list, id)
	return m
}

// clusterLog remembers the last clusters whose machines changed.
type clusterLog struct {
	list []symbol.ID
	base uint64
}

// ClusterChanges returns the clusters whose Members changed since the number that an earlier call returned, perhaps more
// than once, and the number to give next time. ok is false if not all are remembered.
func (t *Table) ClusterChanges(since uint64) (changed []symbol.ID, next uint64, ok bool) {
	l := &t.clusterLog
	next = l.base + uint64(len(l.list))
	if since > l.base {
		since--
	}
	if since < l.base || since > next {
		return nil, next, false
	}
	return l.list[since-l.base:], next, true
}

// Members returns the machines bound to a cluster or in flight for it, in no order, and the version of that set and of
// what a plan reads about its machines. The slice is the table's own and valid until the next write.
func (t *Table) Members(cluster symbol.ID) ([]Index, uint64) {
	if int(cluster) >= len(t.clusters) {
		return nil, 0
	}
	m := &t.clusters[cluster]
	return m.list, m.version
}

// MemberPosition returns where a machine that is bound or in flight is in the Members of its cluster.
func (t *Table) MemberPosition(i Index) int32 { return int32(t.rows.at(i).pos) }

// Avoided returns the free machines that are withheld for this cluster alone, in no order.
func (t *Table) Avoided(cluster symbol.ID) []Index {
	if int(cluster) >= len(t.clusters) {
		return nil
	}
	return t.clusters[cluster].avoided
}
