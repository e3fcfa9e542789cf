package contract_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

var fileDesc = regexp.MustCompile(`fileDesc\("([A-Za-z0-9+/]+)"`)

// gen/ts carries the same schema as gen/go, rules included. This needs no node: protobuf-es embeds the file descriptors.
func TestTypeScriptCarriesTheSameSchema(t *testing.T) {
	for _, fd := range contract.Generated() {
		want := protodesc.ToFileDescriptorProto(fd)
		want.Options = nil // managed mode gives Go a package
		path := filepath.Join(root, "gen", "ts", strings.TrimSuffix(want.GetName(), ".proto")+"_pb.js")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		m := fileDesc.FindSubmatch(text)
		if m == nil {
			t.Errorf("%s holds no file descriptor", path)
			continue
		}
		raw, err := base64.RawStdEncoding.DecodeString(string(m[1]))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var got descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got.Dependency = want.GetDependency() // imported modules stand beside the text, not in it
		withoutJSONNames(want.GetMessageType())
		withoutJSONNames(got.GetMessageType())
		if !proto.Equal(&got, want) {
			t.Errorf("%s is not what proto/ says: run 'make generate' where node is installed", path)
		}
	}
}

func withoutJSONNames(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		for _, f := range m.GetField() {
			f.JsonName = nil
		}
		withoutJSONNames(m.GetNestedType())
	}
}

// The package type-checks, and a client written with it talks to a Connect server of ours: GET for reads, error details, streams.
func TestTypeScriptClient(t *testing.T) {
	node(t)
	dir := filepath.Join(root, "gen", "ts")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".stamp")); err != nil {
		if out, err := run(t.Context(), dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"); err != nil {
			t.Skipf("the npm packages cannot be installed: %v %s%s", err, out, stderr(err))
		}
	}
	if out, err := run(t.Context(), dir, "npm", "run", "--silent", "typecheck"); err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr(err))
	}

	peer := &peer{}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(peer))
	mux.Handle(bigfleetv1alpha1connect.NewShardReadHandler(reader{}))
	server := httptest.NewServer(mux)
	defer server.Close()
	if out, err := run(t.Context(), dir, "node", "test/client.mjs", server.URL); err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr(err))
	}
	if peer.getMethod != http.MethodGet {
		t.Errorf("Get came by %s: a read must be callable by GET (WIRE-4.8)", peer.getMethod)
	}
}

// node skips the test where Node 20 or npm is missing: this repository needs Go, git and make, and nothing else.
func node(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Skip("node is not installed; the descriptors of gen/ts are compared all the same")
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		t.Skipf("node %s is too old, 20 is needed", strings.TrimSpace(string(out)))
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
}

// peer answers as a provider would.
type peer struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	getMethod string
}

func (p *peer) Get(_ context.Context, req *connect.Request[v1.MachineRef]) (*connect.Response[v1.Machine], error) {
	p.getMethod = req.HTTPMethod()
	return connect.NewResponse(idle(req.Msg.GetId())), nil
}

func (p *peer) Drain(_ context.Context, req *connect.Request[v1.DrainRequest]) (*connect.Response[v1.TransitionAck], error) {
	err := connect.NewError(connect.CodeFailedPrecondition, errors.New("token (1700000000, 7) is not newer than the mark (1700000000, 9)"))
	detail, detailErr := connect.NewErrorDetail(&v1.FenceDetail{
		ShardId: req.Msg.GetShardId(), MachineId: req.Msg.GetMachineId(),
		OfferedEpoch: req.Msg.GetShardEpoch(), OfferedSequence: req.Msg.GetSequenceNumber(), MarkEpoch: 1700000000, MarkSequence: 9,
	})
	if detailErr != nil {
		return nil, detailErr
	}
	err.AddDetail(detail)
	return nil, err
}

type reader struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
}

func (reader) InspectNeeds(_ context.Context, req *connect.Request[v1.InspectNeedsRequest], out *connect.ServerStream[v1.InspectNeedsResponse]) error {
	if err := out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Header{Header: &v1.InspectNeedsHeader{Cycle: 1, TotalNeeds: 1}}}); err != nil {
		return err
	}
	return out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Need{Need: &v1.NeedView{ClusterId: req.Msg.GetClusterId()}}})
}
