package fleet

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-3.1: the state holds the tables that the specification lists, and no others.
func TestTablesAreThoseOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/spec/coordinator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "**COORD-3.1**")
	section, _, _ = strings.Cut(section, "**COORD-3.2**")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z]+) \|`).FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	have := (&State{}).TableNames()
	slices.Sort(listed)
	slices.Sort(have)
	if !slices.Equal(listed, have) {
		t.Fatalf("the specification lists %v, the state has %v", listed, have)
	}
}

// COORD-3.4: rows come by their keys, whatever the order in which they came to be: shards, clusters, providers and moves by
// id, domains by key and then value. A reader that holds a state does not see later changes.
func TestReadsAreInOrder(t *testing.T) {
	l := newLog(t)
	for _, id := range []string{"c", "a", "b"} {
		l.must(addShard(id, "sim-"+id), bind("red-"+id, id, false))
		for _, value := range []string{"z", "x", "y"} {
			for _, key := range []string{"rack", "hall"} {
				l.must(&pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: key, Value: value + id, ShardId: id}}})
			}
		}
	}
	before := l.s
	l.must(addShard("aa", "sim"), addShard("ab", "sim"))
	for _, id := range []string{"m2", "m1", "m3"} {
		l.must(planned(id, "aa", "ab", v1.MoveTier_MOVE_TIER_IDLE, 1))
	}
	var domains []string
	for d := range l.s.Domains() {
		domains = append(domains, d.GetKey()+" "+d.GetValue())
	}
	names := func(walk func(yield func(string))) (out []string) {
		walk(func(s string) { out = append(out, s) })
		return out
	}
	for what, got := range map[string][]string{
		"18 domains": domains,
		"5 shards": names(func(yield func(string)) {
			for s := range l.s.Shards() {
				yield(s.GetShardId())
			}
		}),
		"3 clusters": names(func(yield func(string)) {
			for c := range l.s.Clusters() {
				yield(c.GetClusterId())
			}
		}),
		"4 providers": names(func(yield func(string)) {
			for p := range l.s.Providers() {
				yield(p.GetName())
			}
		}),
		"3 moves": names(func(yield func(string)) {
			for m := range l.s.Moves() {
				yield(m.GetMoveId())
			}
		}),
	} {
		if !slices.IsSorted(got) || !strings.HasPrefix(what, fmt.Sprint(len(got), " ")) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if n := before.ShardCount(); n != 3 {
		t.Errorf("a state of before has %d shards now", n)
	}
}

// COORD-1.9: what may be an id, and what a domain.
func TestIDs(t *testing.T) {
	long := strings.Repeat("x", 128)
	for id, want := range map[string]bool{"a": true, "Shard-0.eu_1": true, long: true, long + "x": false, "": false, "a b": false, "ä": false, "a/b": false, "a\x00": false} {
		l := newLog(t)
		if r := l.apply(addShard(id, "sim")).Err(); (r == nil) != want || r != nil && r.Kind != Invalid {
			t.Errorf("shard %q: %v", id, r)
		}
		if r := l.apply(planned(id, "x", "y", v1.MoveTier_MOVE_TIER_IDLE, 1)).Err(); !want && r.Kind != Invalid {
			t.Errorf("move %q: %v", id, r)
		}
		if r := l.apply(&pb.Operation{Kind: &pb.Operation_UpsertPeer{UpsertPeer: &pb.UpsertPeer{Peer: &pb.Peer{NodeId: id}}}}).Err(); (r == nil) != want {
			t.Errorf("node %q: %v", id, r)
		}
	}
	l := newLog(t)
	l.must(addShard("a", "sim"), addShard("A", "sim"))
	if l.s.ShardCount() != 2 {
		t.Error("ids are compared byte for byte")
	}
	for domain, want := range map[[2]string]bool{
		{ZoneKey, "eu-1a"}: true, {"rack", "R_7.b"}: true, {"rack", strings.Repeat("x", 63)}: true, {"rack", strings.Repeat("x", 64)}: false,
		{"rack", ""}: false, {"", "x"}: false, {"rack", "-x"}: false, {"Example.com/rack", "x"}: false, {"example.com/", "x"}: false, {"a/b/c", "x"}: false,
	} {
		r := l.apply(&pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: domain[0], Value: domain[1], ShardId: "a"}}}).Err()
		if (r == nil) != want || r != nil && r.Kind != Invalid {
			t.Errorf("domain %q: %v", domain, r)
		}
	}
}

// COORD-9.4, 11.1, 11.3: shards are of one provider when one row has their addresses; an unknown address makes a row of its
// name; the first shard owns by default until an admin names another; a domain of another provider's shard excludes nothing;
// a row that a shard reports stays, and its region is in the views.
func TestProviders(t *testing.T) {
	l := newLog(t)
	l.must(addShard("a", "10.0.0.1:9000"), addShard("b", "10.0.0.2:9000"), addShard("c", "10.0.0.3:9000,10.0.0.4:9000"))
	if row := l.s.Provider("10.0.0.1:9000"); row.GetDefaultOwner() != "a" || !l.s.View("a").GetOnlyShard() || !l.s.View("c").GetOnlyShard() {
		t.Fatalf("%v", row)
	}
	cloud := &v1.ProviderRegistration{Name: "cloud", Region: "eu", Addresses: []string{"10.0.0.1:9000", "10.0.0.2:9000"}}
	upsert := func(p *v1.ProviderRegistration) *pb.Operation {
		return &pb.Operation{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: p}}}
	}
	l.must(upsert(cloud))
	for _, id := range []string{"a", "b"} {
		if v := l.s.View(id); v.GetProvider() != "cloud" || v.GetOnlyShard() || v.GetRegion() != "eu" || v.GetDefaultOwner() != (id == "a") {
			t.Errorf("view of %s: %v", id, v)
		}
	}
	l.must(assign("eu-1a", "c"))
	if v := l.s.View("a"); len(v.GetForeignDomains()) != 0 {
		t.Errorf("a domain of another provider excludes machines here: %v", v)
	}
	cloud.DefaultOwner = "b"
	l.must(upsert(cloud))
	if l.s.View("a").GetDefaultOwner() || l.s.View("b").GetDefaultOwner() {
		t.Error("no shard owns by default before a let go")
	}
	settleAll(l, "a")
	if !l.s.View("b").GetDefaultOwner() {
		t.Error("b does not own by default after a let go")
	}
	remove := &pb.Operation{Kind: &pb.Operation_RemoveProvider{RemoveProvider: &pb.RemoveProvider{Name: "cloud"}}}
	if r := l.refused(Refused, remove); !slices.Equal(r.Blockers, []string{"a", "b"}) {
		t.Errorf("named: %v", r.Blockers)
	}
	l.must(removeShard("a", true), removeShard("b", true), remove)
	if l.s.Provider("cloud") != nil {
		t.Error("the row is still there")
	}
}
