package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const rackKey = "topology.bigfleet/rack"

// machine is what a provider lists: labels, and whom it is bound to.
type machine struct {
	id, provider  string
	labels        map[string]string
	cluster, mark string // mark is metadata key owner-shard
}

// shardModel follows the shard side of COORD-9: it obeys the newest view it has, forever.
type shardModel struct {
	id, provider string
	view         *v1.ShardView
	cutOff       bool
	// Reservations and adoptions stand on their own until a view knows the exception they led to.
	moved map[string]local
}

// local is one machine given away or adopted; index is the entry that made it an exception, or uncommitted.
type local struct {
	mine  bool
	index uint64
}

const uncommitted = ^uint64(0)

// owns is rule COORD-9.3, read by the letter.
func (sh *shardModel) owns(m *machine) bool {
	v := sh.view
	if sh.provider != m.provider {
		return false
	}
	if m.cluster != "" {
		switch m.mark {
		case sh.id:
			return !slices.Contains(v.GetReleasedClusters(), m.cluster)
		case "":
			return slices.Contains(v.GetOwnedClusters(), m.cluster)
		}
		return slices.ContainsFunc(v.GetInherited(), func(i *v1.InheritedCluster) bool {
			return i.GetClusterId() == m.cluster && slices.Contains(i.GetFromShardIds(), m.mark)
		})
	}
	if fact, ok := sh.moved[m.id]; ok {
		return fact.mine
	}
	is := func(e *v1.MachineException) bool { return e.GetMachineId() == m.id }
	if slices.ContainsFunc(v.GetExceptionsIn(), is) {
		return true
	}
	if v == nil || slices.ContainsFunc(v.GetExceptionsOut(), is) {
		return false
	}
	for _, key := range v.GetPartitionKeys() {
		here := func(d *v1.DomainRef) bool { return d.GetTopologyKey() == key && d.GetTopologyValue() == m.labels[key] }
		if slices.ContainsFunc(v.GetOwnedDomains(), here) {
			return true
		}
		if slices.ContainsFunc(v.GetForeignDomains(), here) {
			return false
		}
	}
	return v.GetOnlyShard() || v.GetDefaultOwner()
}

// obey applies a view if it is newer, and returns the version it acks: the one in force.
func (sh *shardModel) obey(v *v1.ShardView) *pb.Version {
	if sh.view == nil || NewerView(StoredVersion(v.GetVersion()), StoredVersion(sh.view.GetVersion())) {
		sh.view = v
		maps.DeleteFunc(sh.moved, func(_ string, fact local) bool { return fact.index <= v.GetVersion().GetIndex() })
	}
	return StoredVersion(sh.view.GetVersion())
}

// world is a coordinator, its shards, their messages and their machines.
type world struct {
	l        *log
	shards   map[string]*shardModel
	machines []*machine
	acked    map[string]*pb.Version // what the leader heard; lost at a failover
	views    []delivery
	acks     []ack
	next     int
}

type delivery struct {
	to   string
	view *v1.ShardView
}

type ack struct {
	from    string
	version *pb.Version
}

func newWorld(t testing.TB) *world {
	w := &world{l: newLog(t), shards: map[string]*shardModel{}, acked: map[string]*pb.Version{}}
	for i := range 18 {
		m := &machine{id: fmt.Sprintf("m%d", i), provider: "sim", labels: map[string]string{ZoneKey: fmt.Sprintf("z%d", i%3), rackKey: fmt.Sprintf("r%d", i/3%3)}}
		if i%6 == 5 {
			m.provider = "other"
		}
		w.machines = append(w.machines, m)
	}
	w.addShard("sim")
	w.addShard("sim")
	return w
}

func (w *world) addShard(provider string) {
	w.next++
	sh := &shardModel{id: fmt.Sprintf("s%d", w.next), provider: provider, moved: map[string]local{}}
	w.shards[sh.id] = sh
	w.l.must(addShard(sh.id, provider))
}

func (w *world) heard(shard string, required *pb.Version, _ *pb.Domain) bool {
	return w.acked[shard] != nil && !NewerView(required, w.acked[shard])
}

func (w *world) settle() {
	for _, id := range slices.Sorted(maps.Keys(w.shards)) {
		if ops := w.l.s.AckedOperations(id, w.heard); len(ops) > 0 {
			w.l.must(ops...)
		}
	}
	for c := range w.l.s.Clusters() {
		for _, r := range c.GetReleases() {
			if sh := w.shards[r.GetShardId()]; sh != nil && !sh.cutOff && r.GetReleasedIn() == nil {
				w.l.must(&pb.Operation{Kind: &pb.Operation_ReleaseCluster{ReleaseCluster: &pb.ReleaseCluster{ClusterId: c.GetClusterId(), ShardId: sh.id}}})
			}
		}
	}
}

// owners counts who would act on a machine now. A shard that is cut off still does.
func (w *world) owners(m *machine) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(w.shards)) {
		if w.shards[id].owns(m) {
			out = append(out, id)
		}
	}
	return out
}

func (w *world) step(t *rapid.T) string {
	ids := slices.Sorted(maps.Keys(w.shards))
	sh := w.shards[rapid.SampledFrom(ids).Draw(t, "shard")]
	other := w.shards[rapid.SampledFrom(ids).Draw(t, "other")]
	m := rapid.SampledFrom(w.machines).Draw(t, "machine")
	key := rapid.SampledFrom([]string{ZoneKey, rackKey}).Draw(t, "key")
	cluster := rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "cluster")
	domain := func() (string, string) { return key, m.labels[key] }
	switch what := rapid.SampledFrom([]string{"assign", "assign", "move", "move", "unassign", "default", "add", "add elsewhere", "remove", "force",
		"bind", "unbind", "reserve", "reserve", "adopt", "adopt", "commit", "withdraw", "cancel", "exception ends", "send", "send", "send", "deliver", "deliver", "deliver", "ack", "ack", "ack", "lose", "failover",
		"cut", "wipe", "configure", "drain", "provider changes"}).Draw(t, "what"); what {
	case "assign":
		k, v := domain()
		w.l.apply(&pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: k, Value: v, ShardId: sh.id}}})
		return what
	case "move":
		k, v := domain()
		w.l.apply(&pb.Operation{Kind: &pb.Operation_MoveDomain{MoveDomain: &pb.MoveDomain{Key: k, Value: v, To: sh.id}}})
		return what
	case "unassign":
		k, v := domain()
		w.l.apply(&pb.Operation{Kind: &pb.Operation_UnassignDomain{UnassignDomain: &pb.UnassignDomain{Key: k, Value: v}}})
		return what
	case "default":
		w.l.apply(&pb.Operation{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: &v1.ProviderRegistration{
			Name: sh.provider, Addresses: []string{sh.provider}, PartitionKeys: w.l.s.Provider(sh.provider).GetPartitionKeys(), DefaultOwner: sh.id}}}})
		return what
	case "add", "add elsewhere":
		if len(w.shards) < 5 {
			w.addShard(map[bool]string{true: "sim", false: "other"}[what == "add"])
		}
		return what
	case "remove", "force": // an admin removes what is down
		if len(w.shards) > 1 && w.l.apply(removeShard(sh.id, what == "force")).Err() == nil {
			delete(w.shards, sh.id)
			delete(w.acked, sh.id)
		}
		return what
	case "bind":
		w.l.apply(bind(cluster, sh.id, true))
		return what
	case "unbind":
		w.l.apply(&pb.Operation{Kind: &pb.Operation_UnbindCluster{UnbindCluster: &pb.UnbindCluster{ClusterId: cluster}}})
		return what
	case "reserve":
		if sh != other && other.provider == m.provider && m.cluster == "" && sh.owns(m) {
			w.next++
			id := fmt.Sprintf("mv%d", w.next)
			if w.l.apply(&pb.Operation{Kind: &pb.Operation_CreateMove{CreateMove: &pb.CreateMove{Move: &pb.Move{MoveId: id, From: sh.id, To: other.id,
				Provider: m.provider, Tier: v1.MoveTier_MOVE_TIER_IDLE, Wanted: 1, State: v1.Move_STATE_PLANNED}}}}).Err() == nil {
				sh.moved[m.id] = local{false, uncommitted}
				w.l.must(advance(id, v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, m.id))
			}
		}
		return what
	case "adopt", "commit", "withdraw", "cancel":
		w.moveStep(what)
		return what
	case "exception ends": // the holder lets go for good, then says so
		if e := w.l.s.Exception(m.provider, m.id); e.GetOwner() == sh.id && sh.owns(m) && m.cluster == "" {
			sh.moved[m.id] = local{false, w.l.n + 1}
			w.l.must(&pb.Operation{Kind: &pb.Operation_DropException{DropException: &pb.DropException{Provider: m.provider, MachineId: m.id, Owner: sh.id}}})
		}
		return what
	case "configure":
		if m.cluster == "" && sh.owns(m) && sh.view != nil && !slices.Contains(sh.view.GetReleasedClusters(), cluster) {
			m.cluster, m.mark = cluster, rapid.SampledFrom([]string{sh.id, sh.id, sh.id}).Draw(t, "mark")
		}
		return what
	case "drain":
		m.cluster, m.mark = "", ""
		return what
	case "provider changes":
		w.changeProvider(sh)
		return what
	default:
		w.message(t, what, sh)
		return what
	}
}

// moveStep takes the first open move that allows it one step further, as the shards' answers would.
func (w *world) moveStep(what string) {
	for m := range w.l.s.OpenMoves() {
		from, to := w.shards[m.GetFrom()], w.shards[m.GetTo()]
		if len(m.GetMachineIds()) != 1 {
			continue
		}
		machine := m.GetMachineIds()[0]
		adopted := to != nil && to.moved[machine] == local{true, uncommitted}
		switch {
		case what == "adopt" && m.GetState() == v1.Move_STATE_RESERVED && to != nil && !to.cutOff:
			to.moved[machine] = local{true, uncommitted}
		case what == "commit" && m.GetState() == v1.Move_STATE_RESERVED && adopted:
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_RESERVED, v1.Move_STATE_ADOPTED, machine))
			to.moved[machine] = local{true, w.l.n}
			if from != nil {
				from.moved[machine] = local{false, w.l.n}
			}
		case what == "commit" && m.GetState() == v1.Move_STATE_ADOPTED:
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_ADOPTED, v1.Move_STATE_DONE))
		case what == "withdraw" && m.GetState() == v1.Move_STATE_RESERVED:
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_RESERVED, v1.Move_STATE_WITHDRAWING))
		case what == "withdraw" && m.GetState() == v1.Move_STATE_WITHDRAWING && !adopted:
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_WITHDRAWING, v1.Move_STATE_CANCELLING))
		case what == "withdraw" && m.GetState() == v1.Move_STATE_WITHDRAWING:
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_WITHDRAWING, v1.Move_STATE_ADOPTED, machine))
			to.moved[machine] = local{true, w.l.n}
			if from != nil {
				from.moved[machine] = local{false, w.l.n}
			}
		case what == "cancel" && m.GetState() == v1.Move_STATE_CANCELLING && from != nil && !from.cutOff:
			if from.moved[machine] == (local{false, uncommitted}) {
				delete(from.moved, machine)
			}
			w.l.must(advance(m.GetMoveId(), v1.Move_STATE_CANCELLING, v1.Move_STATE_ABORTED))
		default:
			continue
		}
		return
	}
}

// changeProvider points a shard at another provider: it forgets its view's machines at once, being another process.
func (w *world) changeProvider(sh *shardModel) {
	to := map[string]string{"sim": "other", "other": "sim"}[sh.provider]
	sh.provider, sh.view = to, nil
	clear(sh.moved)
	w.l.must(&pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{ShardId: sh.id, ProviderAddress: proto.String(to)}}})
	delete(w.acked, sh.id)
	w.views = slices.DeleteFunc(w.views, func(d delivery) bool { return d.to == sh.id })
	w.acks = slices.DeleteFunc(w.acks, func(a ack) bool { return a.from == sh.id })
}

func (w *world) message(t *rapid.T, what string, sh *shardModel) {
	switch what {
	case "send":
		w.views = append(w.views, delivery{sh.id, w.l.s.View(sh.id)})
	case "deliver":
		if len(w.views) > 0 {
			i := rapid.IntRange(0, len(w.views)-1).Draw(t, "which")
			d := w.views[i]
			w.views = slices.Delete(w.views, i, i+1)
			if to := w.shards[d.to]; to != nil && !to.cutOff && d.view.GetProvider() == to.provider {
				w.acks = append(w.acks, ack{d.to, to.obey(d.view)})
			}
		}
	case "ack":
		if len(w.acks) > 0 {
			i := rapid.IntRange(0, len(w.acks)-1).Draw(t, "which")
			a := w.acks[i]
			w.acks = slices.Delete(w.acks, i, i+1)
			if w.shards[a.from] != nil && NewerView(a.version, w.acked[a.from]) {
				w.acked[a.from] = a.version
			}
			w.settle()
		}
	case "lose":
		w.views, w.acks = nil, nil
	case "failover":
		clear(w.acked)
		w.l.must(&pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{}}})
	case "cut":
		sh.cutOff = !sh.cutOff
	case "wipe": // the shard lost its disk: without a view it owns what carries its name
		sh.view = nil
		clear(sh.moved)
		w.views = slices.DeleteFunc(w.views, func(d delivery) bool { return d.to == sh.id }) // replies to the old process
	}
}

// COORD-21.37: two and more shards on one provider; whatever happens to domains, defaults, providers, clusters, moves
// and messages, no machine ever has two owners, and each unbound one has exactly one once every shard was heard.
func TestNoMachineHasTwoOwners(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		var history []string
		check := func() {
			for _, m := range w.machines {
				if got := w.owners(m); len(got) > 1 {
					for _, id := range got {
						rt.Logf("%s obeys %v, knows %v", id, w.shards[id].view, w.shards[id].moved)
					}
					rt.Fatalf("after %v: machine %s %v (bound %q, mark %q) has owners %v", history, m.id, m.labels, m.cluster, m.mark, got)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			history = append(history, w.step(rt))
			check()
		}
		for _, sh := range w.shards {
			sh.cutOff = false
		}
		for range 24 { // a few report intervals in which nothing else happens
			for _, id := range slices.Sorted(maps.Keys(w.shards)) {
				if view := w.l.s.View(id); view != nil {
					w.acked[id] = w.shards[id].obey(view)
				}
				check()
			}
			w.settle()
			for _, what := range []string{"adopt", "commit", "withdraw", "cancel"} {
				w.moveStep(what)
				check()
			}
		}
		for _, m := range w.machines {
			if got := w.owners(m); len(got) == 0 && m.cluster == "" && w.l.s.shardsOfCount(m.provider) > 0 {
				for _, id := range slices.Sorted(maps.Keys(w.shards)) {
					rt.Logf("%s at %s obeys %v, knows %v", id, w.shards[id].provider, w.shards[id].view, w.shards[id].moved)
				}
				rt.Logf("moves %v", slices.Collect(w.l.s.Moves()))
				rt.Fatalf("after %v: no shard owns machine %s %v", history, m.id, m.labels)
			}
		}
		if n := w.l.s.HandoverCount(); n != 0 {
			rt.Fatalf("after %v: %d handovers never end", history, n)
		}
	})
}
