package fleet

import (
	"encoding/binary"
	"iter"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// sep joins the parts of a key. Ids, provider names, label keys and label values cannot hold it.
const sep = "\x00"

// State is everything the group agreed on, at one log index. It is immutable; the zero State is the empty one.
type State struct {
	index  uint64
	meta   *pb.Meta
	policy *v1.RebalancePolicy

	peers      hashedTable[pb.Peer, *pb.Peer]           // node id
	shards     hashedTable[pb.Shard, *pb.Shard]         // shard id
	clusters   hashedTable[pb.Cluster, *pb.Cluster]     // cluster id
	domains    hashedTable[pb.Domain, *pb.Domain]       // key, value
	providers  hashedTable[pb.Provider, *pb.Provider]   // name
	quotas     hashedTable[pb.Quota, *pb.Quota]         // provider, region
	exceptions hashedTable[pb.Exception, *pb.Exception] // provider, machine id
	moves      hashedTable[pb.Move, *pb.Move]           // move id
	audit      hashedTable[pb.Audit, *pb.Audit]         // sequence, big endian

	indexes
}

// indexes are derived from the tables. They are never stored or hashed, and rebuilt when a snapshot is read.
type indexes struct {
	domainsByShard    set           // shard, key, value: owner and next
	handoversByShard  set           // releaser, key, value
	clustersByShard   set           // shard, cluster: bound, releasing and released
	shardsByProvider  set           // provider, shard; no tombstones
	exceptionsByShard set           // holder, provider, machine
	openMoves         set           // move id
	providerByAddress table[string] // reported address -> provider name
}

// Index is the log index of the newest entry that is part of this state.
func (s *State) Index() uint64 { return s.index }

// Meta returns the row about the group. It is never nil.
func (s *State) Meta() *pb.Meta {
	if s.meta == nil {
		return &pb.Meta{}
	}
	return s.meta
}

// Policy returns the rebalancer's policy with every default filled in.
func (s *State) Policy() *v1.RebalancePolicy {
	if s.policy == nil {
		return DefaultPolicy()
	}
	return s.policy
}

// Shard returns one shard, tombstones included, or nil.
func (s *State) Shard(id string) *pb.Shard { return s.shards.get(id) }

// Cluster returns one cluster row or nil. A row without a shard is unbound.
func (s *State) Cluster(id string) *pb.Cluster { return s.clusters.get(id) }

// Domain returns one domain or nil.
func (s *State) Domain(key, value string) *pb.Domain { return s.domains.get(key + sep + value) }

// Provider returns one provider or nil.
func (s *State) Provider(name string) *pb.Provider { return s.providers.get(name) }

// ProviderOf returns the name of the provider whose addresses contain address.
func (s *State) ProviderOf(address string) (string, bool) {
	name := s.providerByAddress.get(address)
	if name == nil {
		return "", false
	}
	return *name, true
}

// Quota returns one quota row or nil.
func (s *State) Quota(provider, region string) *pb.Quota {
	return s.quotas.get(provider + sep + region)
}

// Exception returns the ownership exception of one machine or nil.
func (s *State) Exception(provider, machine string) *pb.Exception {
	return s.exceptions.get(provider + sep + machine)
}

// Move returns one move or nil.
func (s *State) Move(id string) *pb.Move { return s.moves.get(id) }

// Peer returns one replica or nil.
func (s *State) Peer(node string) *pb.Peer { return s.peers.get(node) }

// Shards walks all shards by id, tombstones included (COORD-3.4).
func (s *State) Shards() iter.Seq[*pb.Shard] { return rows(s.shards.all()) }

// Clusters walks all cluster rows by id.
func (s *State) Clusters() iter.Seq[*pb.Cluster] { return rows(s.clusters.all()) }

// Domains walks all domains by key, then value.
func (s *State) Domains() iter.Seq[*pb.Domain] { return rows(s.domains.all()) }

// Providers walks all providers by name.
func (s *State) Providers() iter.Seq[*pb.Provider] { return rows(s.providers.all()) }

// Quotas walks all quota rows by provider, then region.
func (s *State) Quotas() iter.Seq[*pb.Quota] { return rows(s.quotas.all()) }

// Exceptions walks all exceptions by provider, then machine.
func (s *State) Exceptions() iter.Seq[*pb.Exception] { return rows(s.exceptions.all()) }

// Moves walks all moves by id.
func (s *State) Moves() iter.Seq[*pb.Move] { return rows(s.moves.all()) }

// Peers walks all replicas by node id.
func (s *State) Peers() iter.Seq[*pb.Peer] { return rows(s.peers.all()) }

// ShardsAfter, ClustersAfter and DomainsAfter walk the rows behind a key, for pages (COORD-16.3).
func (s *State) ShardsAfter(id string) iter.Seq[*pb.Shard]     { return rows(s.shards.after(id)) }
func (s *State) ClustersAfter(id string) iter.Seq[*pb.Cluster] { return rows(s.clusters.after(id)) }
func (s *State) DomainsAfter(key, value string) iter.Seq[*pb.Domain] {
	if key == "" {
		return s.Domains()
	}
	return rows(s.domains.after(key + sep + value))
}

// OpenMoves walks the moves that are not finished, by id.
func (s *State) OpenMoves() iter.Seq[*pb.Move] {
	return func(yield func(*pb.Move) bool) {
		for id := range s.openMoves.all() {
			if !yield(s.moves.get(id)) {
				return
			}
		}
	}
}

// OpenMoveCount is the number of moves that are not finished.
func (s *State) OpenMoveCount() int { return s.openMoves.len() }

// ExceptionCount is the number of ownership exceptions in the fleet.
func (s *State) ExceptionCount() int { return s.exceptions.len() }

// DomainCount is the number of domains.
func (s *State) DomainCount() int { return s.domains.len() }

// ShardCount is the number of shard rows, tombstones included.
func (s *State) ShardCount() int { return s.shards.len() }

// ClusterCount is the number of cluster rows.
func (s *State) ClusterCount() int { return s.clusters.len() }

// DomainsOf walks the domains that a shard owns or is about to own, by key then value.
func (s *State) DomainsOf(shard string) iter.Seq[*pb.Domain] {
	return func(yield func(*pb.Domain) bool) {
		prefix := shard + sep
		for k := range s.domainsByShard.under(prefix) {
			if !yield(s.domains.get(k[len(prefix):])) {
				return
			}
		}
	}
}

// HandoversOf walks the domains that wait for a shard to let go.
func (s *State) HandoversOf(shard string) iter.Seq[*pb.Domain] {
	return func(yield func(*pb.Domain) bool) {
		prefix := shard + sep
		for k := range s.handoversByShard.under(prefix) {
			if !yield(s.domains.get(k[len(prefix):])) {
				return
			}
		}
	}
}

// HandoverCount is the number of (shard, domain) pairs that wait for a shard to let go.
func (s *State) HandoverCount() int { return s.handoversByShard.len() }

// ClustersOf walks the clusters a shard is bound to, has to release or released, by id.
func (s *State) ClustersOf(shard string) iter.Seq[*pb.Cluster] {
	return func(yield func(*pb.Cluster) bool) {
		prefix := shard + sep
		for k := range s.clustersByShard.under(prefix) {
			if !yield(s.clusters.get(k[len(prefix):])) {
				return
			}
		}
	}
}

// BoundClusters is the number of clusters bound to a shard.
func (s *State) BoundClusters(shard string) int {
	n := 0
	for c := range s.ClustersOf(shard) {
		if c.GetShardId() == shard {
			n++
		}
	}
	return n
}

// ShardsOf walks the ids of the shards of one provider, tombstones left out.
func (s *State) ShardsOf(provider string) iter.Seq[string] {
	return func(yield func(string) bool) {
		prefix := provider + sep
		for k := range s.shardsByProvider.under(prefix) {
			if !yield(k[len(prefix):]) {
				return
			}
		}
	}
}

// ExceptionsOf walks the exceptions that a shard holds.
func (s *State) ExceptionsOf(shard string) iter.Seq[*pb.Exception] {
	return func(yield func(*pb.Exception) bool) {
		prefix := shard + sep
		for k := range s.exceptionsByShard.under(prefix) {
			if !yield(s.exceptions.get(k[len(prefix):])) {
				return
			}
		}
	}
}

// AuditNewestFirst walks the audit ring backwards from the record before sequence; 0 starts at the newest.
func (s *State) AuditNewestFirst(before uint64) iter.Seq[*pb.Audit] {
	return func(yield func(*pb.Audit) bool) {
		oldestKey, _ := s.audit.first()
		if oldestKey == "" {
			return
		}
		oldest, next := auditSequence(oldestKey), s.Meta().GetAuditSequence()
		if before > 0 && before-1 < next {
			next = before - 1
		}
		for ; next >= oldest && next > 0; next-- {
			if row := s.audit.get(auditKey(next)); row != nil && !yield(row) {
				return
			}
		}
	}
}

// Live reports whether a shard is registered and not a tombstone.
func Live(sh *pb.Shard) bool {
	return sh != nil && sh.GetState() != v1.ShardState_SHARD_STATE_TOMBSTONED
}

// Open reports whether a move is not finished.
func Open(m *pb.Move) bool {
	switch m.GetState() {
	case v1.Move_STATE_DONE, v1.Move_STATE_ABORTED:
		return false
	}
	return true
}

func rows[T any](in iter.Seq2[string, *T]) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, row := range in {
			if !yield(row) {
				return
			}
		}
	}
}

func auditKey(sequence uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], sequence)
	return string(b[:])
}

func auditSequence(key string) uint64 { return binary.BigEndian.Uint64([]byte(key)) }

func domainKey(d *pb.Domain) string       { return d.GetKey() + sep + d.GetValue() }
func quotaKey(q *pb.Quota) string         { return q.GetProvider() + sep + q.GetRegion() }
func exceptionKey(e *pb.Exception) string { return e.GetProvider() + sep + e.GetMachineId() }

// Audit returns the audit record behind the key of a Change, or nil.
func (s *State) Audit(key string) *pb.Audit { return s.audit.get(key) }

// Counts is the number of rows of each table, by name.
func (s *State) Counts() map[string]uint64 {
	out := map[string]uint64{}
	for _, t := range s.stored() {
		out[t.name] = uint64(t.len)
	}
	return out
}

// TableNames lists the tables in the order of COORD-3.1.
func (s *State) TableNames() []string {
	out := []string{"meta", "policy"}
	for _, t := range s.stored() {
		out = append(out, t.name)
	}
	return out
}

// Rows walks one table by name, for inspection.
func (s *State) Rows(table string) iter.Seq[proto.Message] {
	return func(yield func(proto.Message) bool) {
		switch table {
		case "meta":
			yield(s.Meta())
			return
		case "policy":
			yield(s.Policy())
			return
		}
		for _, t := range s.stored() {
			if t.name == table {
				t.rows(yield)
			}
		}
	}
}
