package coordinator_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	kitrpc "github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

const zone = "topology.kubernetes.io/zone"

// single is a group of one replica, with a client.
func single(t *testing.T, tune func(*coordinator.Config)) (*replicas, *coordclient.Client) {
	r := newReplicas(t, 1)
	if tune != nil {
		r.tune = func(_ int, c *coordinator.Config) { tune(c) }
	}
	r.startAll()
	c := r.client(nil)
	r.group(c, 1)
	return r, c
}

// detail is the first detail of a type on a refusal.
func detail[T proto.Message](t *testing.T, err error) T {
	t.Helper()
	got, ok := kitrpc.Detail[T](err)
	if !ok {
		t.Fatalf("%v carries no %T", err, got)
	}
	return got
}

// COORD-5.10, WIRE-4.4: no request makes a log entry that cannot be read again: it is refused before anything is committed, and
// the replica starts again.
func TestOversizedReportsAreRefused(t *testing.T) {
	r, c := single(t, nil)
	report := func(change func(*v1.ShardReport)) connect.Code {
		msg := &v1.ShardReport{ShardId: "shard-1", ShardEpoch: 1, Cycle: 1, ShardAddress: "shard-1:7780", Summary: &v1.ShardSummary{ProviderAddress: "p:1"}}
		change(msg)
		_, err := c.Report(t.Context(), msg)
		if err == nil {
			return 0
		}
		return connect.CodeOf(err)
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, test := range map[string]struct {
		change func(*v1.ShardReport)
		want   connect.Code
	}{
		"address":           {func(m *v1.ShardReport) { m.ShardAddress = long(5 << 10) }, connect.CodeInvalidArgument},
		"address of 70 MiB": {func(m *v1.ShardReport) { m.ShardAddress = long(70 << 20) }, connect.CodeResourceExhausted},
		"provider":          {func(m *v1.ShardReport) { m.Summary.ProviderAddress = long(5 << 10) }, connect.CodeInvalidArgument},
		"machine of an ack": {func(m *v1.ShardReport) {
			m.InstructionAcks = []*v1.InstructAck{{InstructionId: "x", MachineIds: []string{long(5 << 10)}}}
		}, connect.CodeInvalidArgument},
		"holdings": {func(m *v1.ShardReport) {
			m.Holdings = &v1.Holdings{ReleasedClusters: []string{long(5 << 10)}}
		}, connect.CodeInvalidArgument},
		"supply": {func(m *v1.ShardReport) {
			m.Supply = []*v1.SupplyBucket{{InstanceType: long(2 << 20)}}
		}, connect.CodeInvalidArgument},
	} {
		if got := report(test.change); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if got := report(func(*v1.ShardReport) {}); got != 0 {
		t.Errorf("an ordinary report: %v", got)
	}
	r.stop(0)
	r.start(0)
	r.group(r.client(nil), 1)
}

// COORD-16.1, 16.2, 16.7, 16.9, 9.5: what orders do, what they refuse with which code and detail, and that a validated
// one changes nothing.
func TestOrders(t *testing.T) {
	_, c := single(t, nil)
	assign := func(value, shard string) *v1.AssignDomainRequest {
		return &v1.AssignDomainRequest{TopologyKey: zone, TopologyValue: value, ShardId: shard}
	}
	err := refused(t, c, connect.CodeNotFound, core.AssignDomain, assign("eu-1a", "unknown"))
	if p := detail[*v1.Problem](t, err); p.GetReason() != "unknown-shard" || p.GetHint() == "" {
		t.Errorf("COORD-16.7: %v", p)
	}
	register(t, c, "shard-0", "shard-1")
	checked := assign("eu-1a", "shard-0")
	checked.ValidateOnly = true
	must(t, c, core.AssignDomain, checked)
	if got := must(t, c, core.ListDomainAssignments, &v1.ListDomainAssignmentsRequest{}).GetAssignments(); len(got) != 0 {
		t.Fatalf("COORD-16.2: %v", got)
	}
	must(t, c, core.AssignDomain, assign("eu-1a", "shard-0"))
	must(t, c, core.AssignDomain, assign("eu-1a", "shard-0"))
	if err := refused(t, c, connect.CodeAlreadyExists, core.AssignDomain, assign("eu-1a", "shard-1")); !strings.Contains(err.Error(), "shard-0") {
		t.Errorf("the owner is not named: %v", err)
	}
	refused(t, c, connect.CodeInvalidArgument, core.AssignDomain, assign("not a value", "shard-0"))
	must(t, c, core.UnassignDomain, &v1.UnassignDomainRequest{TopologyKey: zone, TopologyValue: "never-there"})
	must(t, c, admin.MoveDomain, &v1.MoveDomainRequest{TopologyKey: zone, TopologyValue: "eu-1a", ToShardId: "shard-1"})
	moves := must(t, c, admin.ListDomainMoves, &v1.ListDomainMovesRequest{}).GetMoves()
	if len(moves) != 1 || moves[0].GetDomain().GetNextShardId() != "shard-1" || !strings.Contains(moves[0].GetWaitingFor(), "shard-0") {
		t.Fatalf("%v", moves)
	}
	refused(t, c, connect.CodeInvalidArgument, admin.FinishDomainMove, &v1.FinishDomainMoveRequest{TopologyKey: zone, TopologyValue: "eu-1a", Force: true})
	must(t, c, admin.FinishDomainMove, &v1.FinishDomainMoveRequest{TopologyKey: zone, TopologyValue: "eu-1a", Force: true, Confirm: "the shard is down"})
	if got := must(t, c, core.ListDomainAssignments, &v1.ListDomainAssignmentsRequest{ShardId: "shard-1"}).GetAssignments(); len(got) != 1 {
		t.Fatalf("%v", got)
	}

	quota := &v1.Quota{Provider: "sim:9000", Declared: 10, Slices: map[string]int32{"shard-0": 7, "shard-1": 4}}
	err = refused(t, c, connect.CodeAborted, admin.SetQuota, &v1.SetQuotaRequest{Quota: quota})
	if d := detail[*v1.RefusedByState](t, err); d.GetReason() != "over-declared" {
		t.Errorf("%v", d)
	}
	quota.Declared = 11
	must(t, c, admin.SetQuota, &v1.SetQuotaRequest{Quota: quota})
	if got := must(t, c, admin.ListQuotas, &v1.ListQuotasRequest{}).GetQuotas(); len(got) != 1 || got[0].GetSlices()["shard-0"] != 7 {
		t.Fatalf("%v", got)
	}
	must(t, c, admin.DeleteQuota, &v1.DeleteQuotaRequest{Provider: "sim:9000"})
	refused(t, c, connect.CodeAborted, admin.RemoveProvider, &v1.RemoveProviderRequest{Name: "sim:9000"})
	if got := must(t, c, admin.ListProviders, &v1.ListProvidersRequest{}).GetProviders(); len(got) != 1 || len(got[0].GetShardIds()) != 2 || got[0].GetDefaultOwner() != "shard-0" {
		t.Fatalf("%v", got)
	}
	must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-0"})
	refused(t, c, connect.CodeAlreadyExists, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-1"})
	must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-1", Rebind: true})
	if got := must(t, c, admin.ListClusterBindings, &v1.ListClusterBindingsRequest{}).GetBindings(); len(got) != 1 || got[0].GetSource() != v1.ClusterBinding_SOURCE_ADMIN {
		t.Fatalf("%v", got)
	}
	must(t, c, admin.UnbindCluster, &v1.UnbindClusterRequest{ClusterId: "red"})

	policy := must(t, c, admin.GetRebalance, &v1.GetRebalanceRequest{}).GetPolicy()
	if policy.GetMode() != v1.RebalanceMode_REBALANCE_MODE_ON || policy.GetMaxTier() != v1.MoveTier_MOVE_TIER_QUOTA {
		t.Fatalf("COORD-12.1: %v", policy)
	}
	policy.Mode = v1.RebalanceMode_REBALANCE_MODE_OFF
	if got := must(t, c, admin.SetRebalance, &v1.SetRebalanceRequest{Policy: policy}); got.GetPolicy().GetMode() != policy.GetMode() {
		t.Fatalf("%v", got)
	}
	refused(t, c, connect.CodeNotFound, admin.CancelMove, &v1.CancelMoveRequest{MoveId: "none"})
	refused(t, c, connect.CodeNotFound, admin.RetryInstruction, &v1.RetryInstructionRequest{ShardId: "shard-0", InstructionId: "none/1"})
}

// COORD-7.5, 7.9, 21.29, 21.33: the life of a shard's row as its reports see it.
func TestShardsComeAndGo(t *testing.T) {
	_, c := single(t, nil)
	register(t, c, "shard-0", "shard-1")
	must(t, c, core.AssignDomain, &v1.AssignDomainRequest{TopologyKey: zone, TopologyValue: "eu-1a", ShardId: "shard-1"})
	err := refused(t, c, connect.CodeAborted, core.RemoveShard, &v1.RemoveShardRequest{ShardId: "shard-1"})
	if d := detail[*v1.RefusedByState](t, err); !d.GetForcePossible() || len(d.GetBlockers()) < 2 {
		t.Fatalf("%v", d)
	}
	must(t, c, core.RemoveShard, &v1.RemoveShardRequest{ShardId: "shard-1", Force: true}, "bigfleet-reason", "gone for good")
	err = refused(t, c, connect.CodeNotFound, core.ReportShard, report("shard-1", 2))
	if d := detail[*v1.ShardDecommissioned](t, err); d.GetShardId() != "shard-1" || d.GetRemovedAtUnixNanos() == 0 || d.GetActor() == "" {
		t.Fatalf("%v", d)
	}
	must(t, c, admin.ReadmitShard, &v1.ReadmitShardRequest{ShardId: "shard-1"})
	must(t, c, core.ReportShard, report("shard-1", 3))

	old := report("shard-0", 9)
	old.ShardEpoch = 0
	refused(t, c, connect.CodeAborted, core.ReportShard, old)
	must(t, c, admin.ResetShardEpoch, &v1.ResetShardEpochRequest{ShardId: "shard-0"})
	must(t, c, core.ReportShard, old)
	if got := must(t, c, admin.DrainShard, &v1.DrainShardRequest{ShardId: "shard-0"}); got.GetDomains() != 0 {
		t.Fatalf("%v", got)
	}
	rows := must(t, c, core.ListShards, &v1.ListShardsRequest{}).GetShards()
	if rows[0].GetState() != v1.ShardState_SHARD_STATE_DRAINING || rows[0].GetLastHeartbeatUnixNs() == 0 || rows[0].GetReportAgeSeconds() < 0 {
		t.Fatalf("%v", rows[0])
	}
	must(t, c, admin.DrainShard, &v1.DrainShardRequest{ShardId: "shard-0", Cancel: true})
	reports := must(t, c, core.ListShardReports, &v1.ListShardReportsRequest{ShardId: "shard-0"}).GetReports()
	if len(reports) != 1 || reports[0].GetSummary().GetTotalMachines() != 10 {
		t.Fatalf("%v", reports)
	}
	refused(t, c, connect.CodeNotFound, core.ListShardReports, &v1.ListShardReportsRequest{ShardId: "unknown"})

	// COORD-16.10: who, what, why and with which result, newest first.
	audit := must(t, c, admin.ListAudit, &v1.ListAuditRequest{Method: "RemoveShard"}).GetRecords()
	if len(audit) != 1 || audit[0].GetReason() != "gone for good" || audit[0].GetResult() != "ok" || audit[0].GetIndex() == 0 ||
		!strings.HasPrefix(audit[0].GetActor(), "plaintext/127.") || !strings.Contains(audit[0].GetRequestJson(), `"shardId":"shard-1"`) {
		t.Fatalf("%v", audit)
	}
	all := must(t, c, admin.ListAudit, &v1.ListAuditRequest{PageSize: 2})
	rest := must(t, c, admin.ListAudit, &v1.ListAuditRequest{PageSize: 10, PageToken: all.GetNextPageToken()})
	if len(all.GetRecords()) != 2 || rest.GetRecords()[0].GetIndex() >= all.GetRecords()[1].GetIndex() || rest.GetNextPageToken() != "" {
		t.Fatalf("pages of the audit: %v then %v", all, rest)
	}
}

// COORD-16.3, WIRE-9.1: pages stay correct while rows come and go, and a token belongs to one list.
func TestPages(t *testing.T) {
	_, c := single(t, nil)
	for i := range 25 {
		register(t, c, fmt.Sprintf("shard-%02d", i*2))
	}
	seen := map[string]int{}
	token := ""
	for n := 0; ; n++ {
		got := must(t, c, core.ListShards, &v1.ListShardsRequest{PageSize: 10, PageToken: token})
		for _, s := range got.GetShards() {
			seen[s.GetShardId()]++
		}
		register(t, c, fmt.Sprintf("shard-%02d", n)) // behind and in front of the place where the walk is
		if token = got.GetNextPageToken(); token == "" {
			break
		}
	}
	for i := range 25 {
		if seen[fmt.Sprintf("shard-%02d", i*2)] != 1 {
			t.Fatalf("shard-%02d was listed %d times", i*2, seen[fmt.Sprintf("shard-%02d", i*2)])
		}
	}
	first := must(t, c, core.ListShards, &v1.ListShardsRequest{PageSize: 1})
	refused(t, c, connect.CodeInvalidArgument, core.ListDomainAssignments, &v1.ListDomainAssignmentsRequest{PageToken: first.GetNextPageToken()})
	refused(t, c, connect.CodeInvalidArgument, core.ListShards, &v1.ListShardsRequest{PageToken: "%%%"})
	refused(t, c, connect.CodeInvalidArgument, core.ListShards, &v1.ListShardsRequest{PageSize: 10_001})
	if got := must(t, c, core.ListShards, &v1.ListShardsRequest{}).GetShards(); len(got) < 25 {
		t.Fatalf("without a page size everything is listed, not %d", len(got))
	}
}

// COORD-16.8: one caller makes so many admin calls in a second; reports are never held back by that.
func TestAdminRate(t *testing.T) {
	_, c := single(t, func(c *coordinator.Config) { c.AdminRate = 3 })
	limited := false
	for range 20 {
		_, err := ask(t, c, core.ListShards, &v1.ListShardsRequest{})
		limited = limited || connect.CodeOf(err) == connect.CodeResourceExhausted
	}
	if !limited {
		t.Fatal("20 calls at once passed a limit of 3 a second")
	}
	for i := range 20 {
		must(t, c, core.ReportShard, report("shard-0", int64(i)+1))
	}
}

// COORD-16.1, WIRE-9.5: a watcher gets the status, then each change of a row and each report.
func TestWatchFleet(t *testing.T) {
	_, c := single(t, nil)
	register(t, c, "shard-0")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	events := make(chan *v1.WatchFleetResponse, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Do(ctx, func(ctx context.Context, at coordclient.Target) error {
			stream, err := at.Admin.WatchFleet(ctx, connect.NewRequest(&v1.WatchFleetRequest{}))
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			for stream.Receive() {
				events <- stream.Msg()
			}
			return nil
		}, coordclient.Unbounded())
	}()
	next := func(what string, is func(*v1.WatchFleetResponse) bool) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if is(e) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no %s", what)
			}
		}
	}
	next("status", func(e *v1.WatchFleetResponse) bool { return len(e.GetStatus().GetShards()) == 1 })
	register(t, c, "shard-1")
	next("new shard", func(e *v1.WatchFleetResponse) bool { return e.GetShard().GetShardId() == "shard-1" })
	must(t, c, core.ReportShard, report("shard-1", 2))
	next("report", func(e *v1.WatchFleetResponse) bool { return e.GetReport().GetShardId() == "shard-1" })
	must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-0"})
	next("binding", func(e *v1.WatchFleetResponse) bool { return e.GetBinding().GetClusterId() == "red" })
	must(t, c, admin.UnbindCluster, &v1.UnbindClusterRequest{ClusterId: "red"})
	next("removed binding", func(e *v1.WatchFleetResponse) bool { return e.GetBinding().GetClusterId() == "red" && e.GetRemoved() })
	next("heartbeat", func(e *v1.WatchFleetResponse) bool { return e.GetEvent() == nil })
	cancel()
	<-done
}

// COORD-18.1 to 18.3: a follower shows what it knows under the documented names, and not zeros.
func TestGaugesOnEveryReplica(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	register(t, c, "shard-0")
	leads := r.leads()
	for i := range 3 {
		eventually(t, fmt.Sprintf("gauges of replica %d", i), func() bool {
			families, err := r.tel[i].Registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					if m.GetGauge() != nil {
						got[f.GetName()] += m.GetGauge().GetValue()
					}
				}
			}
			role := 0.0
			if i == leads {
				role = 1
			}
			return got["bigfleet_coordinator_raft_term"] > 0 && got["bigfleet_coordinator_fencing_term"] > 0 && got["bigfleet_coordinator_peers"] == 3 &&
				got["bigfleet_coordinator_shards"] == 1 && got["bigfleet_coordinator_applied_index"] > 0 && got["bigfleet_coordinator_is_leader"] == role &&
				got["bigfleet_coordinator_disk_bytes"] > 0
		})
	}
}

// COORD-16.10: the audit file follows the ring, over a restart, without a record twice.
func TestAuditFile(t *testing.T) {
	path := t.TempDir() + "/audit.jsonl"
	r, c := single(t, func(c *coordinator.Config) { c.AuditLog = path })
	register(t, c, "shard-0")
	bind := func(cluster string) {
		must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: cluster, ShardId: "shard-0"})
	}
	bind("red")
	r.stop(0)
	r.start(0)
	bind("blue")
	var text []byte
	defer func() {
		if t.Failed() {
			t.Logf("%s", text)
		}
	}()
	eventually(t, "both records are in the file", func() bool {
		var err error
		text, err = os.ReadFile(path)
		return err == nil && strings.Count(string(text), "BindCluster") == 2 && strings.Count(string(text), "red") == 1 && strings.Count(string(text), "\n") == 2
	})
}

// COORD-21.34: the clocks of shards are an hour off, in both directions. Reports are ordered by epoch and cycle, their
// ages are those of the coordinator's clock, and all of them are fresh.
func TestClocksOfShards(t *testing.T) {
	_, c := single(t, nil)
	for i, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		for cycle := int64(1); cycle <= 3; cycle++ {
			r := report(fmt.Sprint("shard-", i), cycle)
			r.Summary.TotalMachines = int32(cycle)
			// The clock of the shard is set back by hours between two reports, too.
			r.TimestampUnixNanos = time.Now().Add(off).Add(-time.Duration(cycle) * time.Hour).UnixNano()
			must(t, c, core.ReportShard, r)
		}
	}
	for _, r := range must(t, c, core.ListShardReports, &v1.ListShardReportsRequest{}).GetReports() {
		if r.GetSummary().GetTotalMachines() != 3 || r.GetAgeSeconds() < 0 || r.GetAgeSeconds() > 60 {
			t.Errorf("%v", r)
		}
	}
	err := refused(t, c, connect.CodeAborted, core.RemoveShard, &v1.RemoveShardRequest{ShardId: "shard-0"})
	if d := detail[*v1.RefusedByState](t, err); d.GetReason() != "shard-alive" {
		t.Errorf("a shard whose clock is wrong counts as silent: %v", d)
	}
}
