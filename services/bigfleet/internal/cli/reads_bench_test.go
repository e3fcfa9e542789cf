package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

const (
	benchShards   = 50
	benchMachines = 500_000 / benchShards // of each
)

// full is a shard with its part of the machines; it answers from memory, so that what is measured is the command.
type full struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	bigfleetv1alpha1connect.UnimplementedShardAdminHandler
	id       string
	machines []*bigfleetv1alpha1.MachineView
}

func (f *full) GetStatus(context.Context, *connect.Request[bigfleetv1alpha1.GetStatusRequest]) (*connect.Response[bigfleetv1alpha1.GetStatusResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.GetStatusResponse{ShardId: f.id, Ready: true, Cycle: 9, MachinesByState: map[string]int32{"configured": benchMachines}}), nil
}

func (f *full) GetMachine(_ context.Context, r *connect.Request[bigfleetv1alpha1.GetMachineRequest]) (*connect.Response[bigfleetv1alpha1.GetMachineResponse], error) {
	if !strings.HasPrefix(r.Msg.GetMachineId(), f.id) {
		return nil, connect.NewError(connect.CodeNotFound, io.EOF)
	}
	return connect.NewResponse(&bigfleetv1alpha1.GetMachineResponse{Machine: f.machines[0]}), nil
}

func (f *full) ListMachines(_ context.Context, r *connect.Request[bigfleetv1alpha1.ListMachinesRequest]) (*connect.Response[bigfleetv1alpha1.ListMachinesResponse], error) {
	out, size := &bigfleetv1alpha1.ListMachinesResponse{}, int(r.Msg.GetPageSize())
	if len(r.Msg.GetStates()) > 0 {
		return connect.NewResponse(out), nil // none is so
	}
	if size == 0 {
		size = 1000
	}
	from, _ := strconv.Atoi(r.Msg.GetPageToken())
	to := min(from+size, len(f.machines))
	out.Machines = f.machines[from:to]
	if to < len(f.machines) {
		out.NextPageToken = strconv.Itoa(to)
	}
	return connect.NewResponse(out), nil
}

// PauseActuation stores nothing: what a shard takes to store a pause is measured with the shard.
func (f *full) PauseActuation(context.Context, *connect.Request[bigfleetv1alpha1.PauseActuationRequest]) (*connect.Response[bigfleetv1alpha1.PauseActuationResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.PauseActuationResponse{Pause: &bigfleetv1alpha1.Pause{PauseId: "p-1"}}), nil
}

// lister is the coordinator that knows them.
type lister struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler
	bigfleetv1alpha1connect.UnimplementedCoordinatorAdminHandler
	shards []*bigfleetv1alpha1.ShardRegistryEntry
}

func (l *lister) ListShards(context.Context, *connect.Request[bigfleetv1alpha1.ListShardsRequest]) (*connect.Response[bigfleetv1alpha1.ListShardsResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.ListShardsResponse{Shards: l.shards}), nil
}

func (l *lister) GetCoordinatorStatus(context.Context, *connect.Request[bigfleetv1alpha1.GetCoordinatorStatusRequest]) (*connect.Response[bigfleetv1alpha1.GetCoordinatorStatusResponse], error) {
	return connect.NewResponse(&bigfleetv1alpha1.GetCoordinatorStatusResponse{NodeId: "coordinator-0", Role: "leader", ClusterUuid: "1"}), nil
}

// BenchmarkReads is the command's own part of OPS-4.13, and of OPS-4.20 with `pause --all`: 50 shards with 10,000 machines each, over loopback.
func BenchmarkReads(b *testing.B) {
	l := &lister{}
	for i := range benchShards {
		f := &full{id: fmt.Sprintf("shard-%02d", i)}
		for n := range benchMachines {
			f.machines = append(f.machines, &bigfleetv1alpha1.MachineView{ShardId: f.id, NodeName: "node", StateSinceUnixNanos: now.UnixNano(), Machine: &bigfleetv1alpha1.Machine{
				Id: fmt.Sprintf("%s-m-%05d", f.id, n), State: bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED, Cluster: "red", InstanceType: "m6i.large", Zone: "eu-1a", PricePerHour: 0.1,
				Resources: &bigfleetv1alpha1.Resources{Resources: map[string]string{"cpu": "8", "memory": "32Gi"}}}})
		}
		l.shards = append(l.shards, &bigfleetv1alpha1.ShardRegistryEntry{ShardId: f.id, Address: serve(b, f, f)})
	}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCoordinatorHandler(l))
	mux.Handle(bigfleetv1alpha1connect.NewCoordinatorAdminHandler(l))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	b.Cleanup(server.Close)
	for _, line := range []string{"status", "get machines shard-49-m-00000", "get machines --state failed", "__complete get machines shard-49-m-099", "get machines -o name", "pause --all --reason drill --yes"} {
		b.Run(line, func(b *testing.B) {
			args := append(strings.Fields(line), "--coordinator", strings.TrimPrefix(server.URL, "http://"))
			if args[0] == "__complete" { // what is completed comes last
				args = append([]string{"__complete", "--coordinator", strings.TrimPrefix(server.URL, "http://")}, strings.Fields(line)[1:]...)
			}
			for b.Loop() {
				e := env.Env{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now}
				if code := cli.Main(b.Context(), e, args); code != exit.OK {
					b.Fatalf("exit %d", code)
				}
			}
		})
	}
}
