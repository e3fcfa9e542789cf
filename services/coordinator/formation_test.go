package coordinator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-21.2, 13.3: in whatever order replicas start, only the first one begins a group, and not before all answered.
func TestOnlyTheFirstReplicaBegins(t *testing.T) {
	r := newReplicas(t, 3)
	r.start(2, 1)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, i := range []int{1, 2} {
			if s := r.status(i); s.GetHasState() || s.GetClusterUuid() != "" {
				t.Fatalf("replica %d began a group: %v", i, s)
			}
		}
	}
	r.start(0)
	r.group(r.client(nil), 3)
}

// COORD-21.3, 21.4, 13.1: every replica has another address after each start. All three restarted at once form their
// quorum again by themselves, and no membership entry is written for it.
func TestAllRestartAtOnceOnNewAddresses(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	register(t, c, "shard-0")
	before := r.status(r.leads()).GetPeers()
	r.stopAll()
	r.startAll()
	r.group(c, 3)
	if got := must(t, c, core.ListShards, &v1.ListShardsRequest{}).GetShards(); len(got) != 1 {
		t.Fatalf("the registration is lost: %v", got)
	}
	after := r.status(r.leads()).GetPeers()
	for i := range before {
		if before[i].GetRaftAddress() != after[i].GetRaftAddress() || before[i].GetNodeId() != after[i].GetNodeId() {
			t.Fatalf("membership changed from %v to %v", before, after)
		}
	}
}

// COORD-21.5, 13.4, 15.13: the first replica with a wiped disk never mints a second group: it joins the living one, and
// with the others out of reach it waits.
func TestWipedFirstReplicaNeverBeginsASecondGroup(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	register(t, c, "shard-0")
	uuid := r.status(0).GetClusterUuid()
	r.stop(0)
	if err := os.RemoveAll(filepath.Join(r.dirs[0], "raft")); err != nil {
		t.Fatal(err)
	}
	r.net.Isolate(id(0), id(1), id(2))
	r.start(0)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if s := r.status(0); s.GetHasState() || s.GetClusterUuid() != "" {
			t.Fatalf("a second group beside the living one: %v", s)
		}
	}
	r.net.Heal()
	eventually(t, "the wiped replica is back", func() bool {
		s := r.status(0)
		return s.GetClusterUuid() == uuid && s.GetAppliedIndex() == r.status(1).GetAppliedIndex() && s.GetStateHash() == r.status(1).GetStateHash()
	})
	r.group(c, 3)
}

// COORD-21.8, 13.12, 13.13: three replicas become five by starting two more, and three again by removing two, the
// leader among them. A removed one stays out until it is readmitted.
func TestFiveAndBack(t *testing.T) {
	r := newReplicas(t, 5)
	r.n = 3
	r.startAll()
	c := r.client(nil)
	r.group(c, 3)
	r.n = 5
	r.start(3, 4)
	c = r.client(nil)
	r.group(c, 5)
	leads := r.leads()
	must(t, c, admin.RemoveRaftPeer, &v1.RemoveRaftPeerRequest{NodeId: id(leads)}, "bigfleet-reason", "shrinking")
	r.group(c, 4)
	r.stop(leads)
	gone := (r.leads() + 1) % 5
	if gone == leads {
		gone = (gone + 1) % 5
	}
	refused(t, c, connect.CodeNotFound, admin.RemoveRaftPeer, &v1.RemoveRaftPeerRequest{NodeId: "node-9"})
	if gone == r.leads() {
		gone = (gone + 1) % 5
	}
	must(t, c, admin.RemoveRaftPeer, &v1.RemoveRaftPeerRequest{NodeId: id(gone)})
	r.group(c, 3)
	r.stop(gone)

	r.start(gone) // with its disk: it asks to join and is refused with the reason
	time.Sleep(2 * time.Second)
	r.group(c, 3)
	must(t, c, admin.ReadmitRaftPeer, &v1.ReadmitRaftPeerRequest{NodeId: id(gone)})
	r.group(c, 4)
	next := must(t, c, admin.TransferLeadership, &v1.TransferLeadershipRequest{NodeId: id(gone)})
	if next.GetLeader().GetLeaderId() != id(gone) {
		t.Fatalf("leadership went to %v", next)
	}
	if got := must(t, c, admin.ListAudit, &v1.ListAuditRequest{Method: "RemoveRaftPeer"}).GetRecords(); len(got) != 2 || got[1].GetReason() != "shrinking" {
		t.Fatalf("audit: %v", got)
	}
}

// COORD-21.14, 6.4.2: a rolling restart. A client that asks meanwhile gets an answer within its own deadline, at every moment.
func TestRollingRestart(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	stop, done := make(chan struct{}), make(chan struct{})
	var worst time.Duration
	reports := int64(0)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			reports++
			start := time.Now()
			if _, err := ask(t, c, core.ReportShard, report("shard-0", reports)); err != nil {
				t.Errorf("report %d: %v", reports, err)
				return
			}
			worst = max(worst, time.Since(start))
		}
	}()
	for i := range 3 {
		r.stop(i)
		r.start(i)
		r.group(r.client(nil), 3)
	}
	close(stop)
	<-done
	t.Logf("%d reports, the slowest took %s", reports, worst)
}

// COORD-13.11, 13.6: replicas that know one name for all, and nothing else, find their group by it.
func TestJoinByOneName(t *testing.T) {
	r := newReplicas(t, 3)
	r.tune = func(i int, c *coordinator.Config) {
		switch i {
		case 1:
			c.JoinAddr = rpc(0) // beside --peers
		case 2:
			c.Peers, c.JoinAddr = nil, rpc(0)
		}
	}
	r.startAll()
	r.group(r.client(nil), 3)
}

// COORD-13.14: voters that do not answer for long are taken out, as long as those that are left are as many as expected.
func TestDeadPeersAreRemoved(t *testing.T) {
	r := newReplicas(t, 5)
	r.n = 3
	r.tune = func(_ int, c *coordinator.Config) { c.BootstrapExpect, c.DeadPeerAfter = 3, time.Second }
	r.startAll()
	r.group(r.client(nil), 3)
	r.n = 5
	r.start(3)
	c := r.client(nil)
	r.group(c, 4)
	r.stop(3)
	r.group(c, 3)
	eventually(t, "the audit says why", func() bool {
		records := must(t, c, admin.ListAudit, &v1.ListAuditRequest{Method: "dead-peer-removal"}).GetRecords()
		return len(records) == 1 && strings.Contains(records[0].GetRequestJson(), id(3))
	})
	follower := (r.leads() + 1) % 3
	r.stop(follower)
	eventually(t, "the leader misses it", func() bool {
		s := must(t, c, admin.GetFleetStatus, &v1.GetFleetStatusRequest{}).GetStatus()
		return s.GetHealthyVoters() == 2
	})
	time.Sleep(3 * time.Second) // three times as long as it takes to be called dead
	if s := must(t, c, admin.GetFleetStatus, &v1.GetFleetStatusRequest{}).GetStatus(); s.GetVoters() != 3 {
		t.Fatalf("a group that shall have three voters shrank to %d", s.GetVoters())
	}
}
