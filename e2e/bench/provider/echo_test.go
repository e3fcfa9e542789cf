package provider_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// asEcho, in the environment, makes this test binary a bare Connect handler; its value is the machine that it answers with.
const asEcho = "BIGFLEET_TEST_AS_ECHO"

// echo answers every Get with one machine.
type echo struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	m *pb.Machine
}

func (e echo) Get(context.Context, *connect.Request[pb.MachineRef]) (*connect.Response[pb.Machine], error) {
	return connect.NewResponse(e.m), nil
}

// serveEcho prints its address and serves until the process is ended.
func serveEcho(encoded string) error {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	m := &pb.Machine{}
	if err := proto.Unmarshal(text, m); err != nil {
		return err
	}
	_, handler := bigfleetv1alpha1connect.NewCapacityProviderHandler(echo{m: m})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return (&http.Server{Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// startEcho starts it in a process of its own, as the provider is.
func startEcho(b *testing.B, client *http.Client, m *pb.Machine) (bare bigfleetv1alpha1connect.CapacityProviderClient, end func()) {
	b.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), asEcho+"="+base64.StdEncoding.EncodeToString(text), "GOMAXPROCS=2"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return bigfleetv1alpha1connect.NewCapacityProviderClient(client, "http://"+strings.TrimSpace(addr), connect.WithGRPC()), func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed" is what was asked for
	}
}
