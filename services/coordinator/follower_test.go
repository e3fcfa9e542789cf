package coordinator_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-6.2.2, 6.2.5: a replica that does not lead answers a report before it reads it, in every protocol and encoding, also
// one whose arguments a leader would refuse.
func TestReportsToAFollower(t *testing.T) {
	r := newReplicas(t, 3)
	r.start(1) // alone: it waits for the first replica
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: r.net.Dialer("client")}
	defer transport.CloseIdleConnections()
	long := report("shard-0", 1)
	long.ShardAddress = strings.Repeat("x", 1<<20)
	for _, options := range [][]connect.ClientOption{
		{}, {connect.WithProtoJSON()}, {connect.WithSendGzip()}, {connect.WithGRPC()}, {connect.WithGRPC(), connect.WithSendGzip()}, {connect.WithGRPCWeb()},
	} {
		stub := api.NewCoordinatorClient(&http.Client{Transport: transport, Timeout: time.Minute}, "http://"+rpc(1), options...)
		for what, sent := range map[string]*v1.ShardReport{"plain": report("shard-0", 1), "without an id": {}, "a megabyte": long} {
			t.Run(fmt.Sprintf("%T/%s", options, what), func(t *testing.T) {
				_, err := stub.ReportShard(t.Context(), connect.NewRequest(sent))
				if connect.CodeOf(err) != connect.CodeFailedPrecondition {
					t.Fatalf("got %v", err)
				}
				detail[*v1.NotLeader](t, err)
			})
		}
	}
}

// COORD-6.2.1, 1.7: every RPC of both services is the leader's alone, reads and streams included, but for the status of a
// replica, which each answers about itself.
func TestEverythingIsTheLeaders(t *testing.T) {
	r := newReplicas(t, 3)
	r.start(1) // alone: it waits for the first replica
	for _, service := range []string{api.CoordinatorName, api.CoordinatorAdminName} {
		for procedure, method := range rpcs(t, service) {
			want := connect.CodeFailedPrecondition
			if procedure == api.CoordinatorAdminGetCoordinatorStatusProcedure {
				want = 0
			}
			err := r.try(1, nil, procedure, method)
			if got := connect.CodeOf(err); err == nil && want != 0 || err != nil && got != want {
				t.Errorf("%s: %v", procedure, err)
			}
		}
	}
}
