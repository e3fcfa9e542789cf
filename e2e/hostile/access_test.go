package hostile

import (
	"context"
	"crypto/tls"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
)

// The callers of the table.
var (
	admin       = identity.ID{Kind: identity.Admin}
	readonly    = identity.ID{Kind: identity.ReadOnly}
	shard       = identity.ID{Kind: identity.Shard, Name: "shard-9"}
	cluster     = identity.ID{Kind: identity.Cluster, Name: "red"}
	coordinator = identity.ID{Kind: identity.Coordinator, Name: "node-9"}
)

var callers = []identity.ID{admin, readonly, shard, cluster, coordinator}

var (
	admins     = []identity.ID{admin}
	readers    = []identity.ID{admin, readonly}
	everyRead  = []identity.ID{admin, readonly, cluster}
	describers = []identity.ID{admin, readonly, shard}
	shards     = []identity.ID{shard}
	clusters   = []identity.ID{cluster}
)

// access says who may call what (WIRE-2.5). An identity that may is refused all the same when a field of the request names another.
var access = map[string]map[string][]identity.ID{
	"Coordinator": {
		"ReportShard": shards, "JoinRaftCluster": {coordinator, admin}, "SnapshotSave": admins,
		"AssignDomain": admins, "UnassignDomain": admins, "RemoveShard": admins,
		"ListShards": readers, "ListDomainAssignments": readers, "ListShardReports": readers,
	},
	"CoordinatorAdmin": {
		"GetCoordinatorStatus": {admin, readonly, coordinator}, "GetFleetStatus": readers, "WatchFleet": readers, "ListClusterBindings": readers,
		"ListDomainMoves": readers, "ListProviders": readers, "ListQuotas": readers, "GetRebalance": readers, "ListMoves": readers,
		"ListInstructions": readers, "ListAudit": readers,
		"BindCluster": admins, "UnbindCluster": admins, "MoveDomain": admins, "FinishDomainMove": admins, "UpsertProvider": admins,
		"RemoveProvider": admins, "SetQuota": admins, "DeleteQuota": admins, "SetRebalance": admins, "CancelMove": admins,
		"RetryInstruction": admins, "DrainShard": admins, "ReadmitShard": admins, "ResetShardEpoch": admins, "RemoveRaftPeer": admins,
		"ReadmitRaftPeer": admins, "TransferLeadership": admins,
	},
	"Shard": {"Session": clusters},
	"ShardRead": {
		"InspectNeeds": everyRead, "ListClusters": everyRead, "ListMachines": everyRead, "ListHints": everyRead, "GetMachine": everyRead,
		"GetMachineHistory": everyRead, "Explain": everyRead, "WatchDecisions": everyRead,
		"GetStatus": readers, "Plan": readers, "CompareCycles": readers, "GetCost": readers,
	},
	"ShardAdmin": {
		"PauseActuation": admins, "ResumeActuation": admins, "SetDryRun": admins, "RetryMachine": admins, "ForgetMachine": admins,
		"AcceptRollup": admins, "ReconcileNow": admins, "RetireCluster": admins, "UnretireCluster": admins, "AbandonReservation": admins,
		"ClearBackoff": admins,
	},
	"CapacityProvider": {
		"Create": shards, "Configure": shards, "Drain": shards, "Delete": shards, "Get": describers, "List": describers,
	},
	"ProviderAdmin": {
		"GetProvider": describers, "ExplainMachine": readers, "RetireMachine": admins, "AcknowledgeLoss": admins, "SetMutations": admins,
		"ClaimEpoch": shards,
	},
	"SubstrateControl": {
		"SetBehaviour": admins, "ClearBehaviours": admins, "SetStock": admins, "SetPrice": admins, "LoseHosts": admins, "ReturnHosts": admins,
		"Interrupt": admins, "GetState": admins, "GetJournal": admins, "Reset": admins,
	},
}

// tableRow splits a procedure into the keys of access.
func tableRow(procedure string) (service, method string) {
	service, method, _ = strings.Cut(strings.TrimPrefix(procedure, "/bigfleet.v1alpha1."), "/")
	return service, method
}

// WIRE-2.5, COORD-14.1 to 14.4, SHARD-22.5, PROV-2.6 to 2.9: every RPC of every server against every kind of certificate.
func TestWhoMayCallWhat(t *testing.T) {
	methods := rpcs(t)
	for service, rows := range access {
		for method := range rows {
			if methods["/bigfleet.v1alpha1."+service+"/"+method] == nil {
				t.Errorf("the table has %s/%s, which does not exist", service, method)
			}
		}
	}
	s := newStage(t)
	for _, procedure := range slices.Sorted(maps.Keys(methods)) {
		service, name := tableRow(procedure)
		allowed, known := access[service][name]
		if !known {
			t.Errorf("the table does not say who may call %s", procedure)
			continue
		}
		for _, who := range callers {
			c := s.caller(who)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			own := ownRequest(methods[procedure], who)
			answer, err := c.call(ctx, s.addrs[served[string(methods[procedure].Parent().FullName())]], procedure, body(methods[procedure], own))
			cancel()
			if err != nil {
				t.Errorf("%s as %s: %v", procedure, who, err)
				continue
			}
			if denied := answer.code == "permission_denied"; denied == slices.Contains(allowed, who) {
				t.Errorf("%s as %s: %s; denied %v, want %v", procedure, who, answer, denied, !denied)
			}
		}
	}
	s.strangersAreNotHeard(methods)
	s.refusalsFillNoLog(methods)
	s.unharmed()
}

// strangersAreNotHeard calls every RPC without a certificate, and as an admin of another authority: no server answers.
func (s *stage) strangersAreNotHeard(methods map[string]protoreflect.MethodDescriptor) {
	s.t.Helper()
	other, err := devca.New("another authority")
	if err != nil {
		s.t.Fatal(err)
	}
	files, err := other.Write(s.t.TempDir(), "admin", devca.For(admin))
	if err != nil {
		s.t.Fatal(err)
	}
	foreign, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, c := range map[string]*caller{"no certificate": s.stranger(), "an admin of another authority": s.stranger(foreign)} {
		for _, procedure := range slices.Sorted(maps.Keys(methods)) {
			m := methods[procedure]
			ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
			answer, err := c.call(ctx, s.addrs[served[string(m.Parent().FullName())]], procedure, body(m, ownRequest(m, admin)))
			cancel()
			if err == nil {
				s.t.Errorf("%s as %s: %s; want no answer at all", procedure, name, answer)
			}
		}
	}
}

// refusalsFillNoLog makes the same refused calls again and again. Each cause is a line now and then, not one for each call.
func (s *stage) refusalsFillNoLog(methods map[string]protoreflect.MethodDescriptor) {
	s.t.Helper()
	before := map[string]int64{}
	for name, p := range s.procs {
		before[name] = fileSize(s.t, p.LogFile())
	}
	c := s.caller(coordinator)
	for range 200 {
		for _, procedure := range []string{api.CoordinatorAdminBindClusterProcedure, api.ShardAdminPauseActuationProcedure, api.CapacityProviderCreateProcedure} {
			m := methods[procedure]
			ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
			got, err := c.call(ctx, s.addrs[served[string(m.Parent().FullName())]], procedure, body(m, ownRequest(m, c.id)))
			cancel()
			if err != nil || got.code != "permission_denied" {
				s.t.Fatalf("%s: %s, %v", procedure, got, err)
			}
		}
	}
	for name, p := range s.procs {
		if grown := fileSize(s.t, p.LogFile()) - before[name]; grown > 20_000 {
			s.t.Errorf("200 refused calls made %d bytes in the log of %s", grown, name)
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
