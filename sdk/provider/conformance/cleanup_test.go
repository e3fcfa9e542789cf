package conformance_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// PROV-29.7: after a run no server is left at the cloud, also where machines ended FAILED; where the suite may not retire them, the
// report names each machine that is left and its host.
func TestNoMachineIsLeftBehind(t *testing.T) {
	for _, admin := range []bool{true, false} {
		client, addr, control := good(t, provider.SubstrateReadiness())
		if !admin {
			mux := http.NewServeMux()
			mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(&wrong{good: client}, connect.WithReadMaxBytes(64<<20)))
			addr = serve(t, mux)
		}
		report, err := conformance.Execute(t.Context(), quick(addr, control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault),
			conformance.Options{Seed: 1, Only: []string{"life/create", "fail/create-error", "fail/configure-error", "fail/drain-error", "fail/delete-error"}})
		if err != nil {
			t.Fatal(err)
		}
		state, err := bigfleetv1alpha1connect.NewSubstrateControlClient(http.DefaultClient, "http://"+control).GetState(t.Context(),
			connect.NewRequest(&bigfleetv1alpha1.GetStateRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		hosts := 0
		for _, pool := range state.Msg.GetPools() {
			hosts += int(pool.GetHosts())
		}
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		named := strings.Contains(text.String(), "still have a host")
		if len(report.Left) != hosts || admin && (hosts > 0 || len(report.Failed) > 0) || !admin && hosts == 0 || named != (hosts > 0) {
			t.Errorf("ProviderAdmin %v: %d hosts at the cloud, left %v, failed %v\n%s", admin, hosts, report.Left, report.Failed, text.String())
		}
	}
}
