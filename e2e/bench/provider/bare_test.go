package provider_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// asBare, in the environment, makes this test binary a bare Connect handler; its value is the machine that it answers with.
const asBare = "BIGFLEET_TEST_AS_BARE"

// bareServer is the least that answers calls: no machines, no fences, no states. A Get is a constant. An ack waits for an append of
// 512 bytes and one fsync that it shares with other waiting calls, and 50 ms later the same is written once more, as the
// completion of a transition must be (PROV-12.1, 12.2). It is the floor of what this machine, this disk and this protocol
// can do in the minute of the measurement.
type bareServer struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	m       *pb.Machine
	log     *os.File
	waiting chan chan error
}

func (s *bareServer) Get(context.Context, *connect.Request[pb.MachineRef]) (*connect.Response[pb.Machine], error) {
	return connect.NewResponse(s.m), nil
}

func (s *bareServer) Create(context.Context, *connect.Request[pb.CreateRequest]) (*connect.Response[pb.TransitionAck], error) {
	if err := s.append(); err != nil {
		return nil, err
	}
	time.AfterFunc(took, func() { _ = s.append() }) // a disk that fails fails the next ack too
	return connect.NewResponse(&pb.TransitionAck{OperationId: "bare", Machine: s.m}), nil
}

func (s *bareServer) append() error {
	done := make(chan error, 1)
	s.waiting <- done
	return <-done
}

// commit appends for all that wait and syncs once.
func (s *bareServer) commit() {
	entry := make([]byte, 512)
	for first := range s.waiting {
		batch := []chan error{first}
		for more := true; more; {
			select {
			case one := <-s.waiting:
				batch = append(batch, one)
			default:
				more = false
			}
		}
		var err error
		for range batch {
			_, failed := s.log.Write(entry)
			err = errors.Join(err, failed)
		}
		err = errors.Join(err, s.log.Sync())
		for _, one := range batch {
			one <- err
		}
	}
}

// bulk sends as many bytes as it is asked for, from memory.
func bulk(w http.ResponseWriter, r *http.Request) {
	left, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	piece := make([]byte, 1<<20)
	for left > 0 && err == nil {
		var n int
		n, err = w.Write(piece[:min(left, len(piece))])
		left -= n
	}
}

// serveBare prints its address and serves until the process is ended.
func serveBare(encoded string) error {
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	s := &bareServer{m: &pb.Machine{}, waiting: make(chan chan error)}
	if err := proto.Unmarshal(text, s.m); err != nil {
		return err
	}
	if s.log, err = os.Create("log"); err != nil {
		return err
	}
	go s.commit()
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(s))
	mux.HandleFunc("GET /bulk", bulk)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return (&http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// bare is a running bare handler, called as a fleet is, over connections of its own.
type bare struct {
	bigfleetv1alpha1connect.CapacityProviderClient
	addr       string
	http, bulk *http.Client
	end        func()
}

// startBare starts it in a process of its own, as the provider is, with its log on a disk of the same kind.
func startBare(b *testing.B, m *pb.Machine) *bare {
	b.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	if self, err = filepath.Abs(self); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr, cmd.Dir = append(os.Environ(), asBare+"="+base64.StdEncoding.EncodeToString(text), "GOMAXPROCS=2"), os.Stderr, b.TempDir()
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
	s := &bare{addr: strings.TrimSpace(addr), http: cleartext(), bulk: cleartext()}
	s.CapacityProviderClient = bigfleetv1alpha1connect.NewCapacityProviderClient(s.http, "http://"+s.addr, connect.WithGRPC())
	s.end = sync.OnceFunc(func() {
		s.http.CloseIdleConnections()
		s.bulk.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "signal: killed" is what was asked for
	})
	b.Cleanup(s.end)
	return s
}

func (s *bare) create(id string) error {
	_, err := s.Create(context.Background(), connect.NewRequest(&pb.CreateRequest{MachineId: id, ShardId: "bench", ShardEpoch: 1, SequenceNumber: 1}))
	return err
}

// download reads that many bytes.
func (s *bare) download(bytes int64) error {
	answer, err := s.bulk.Get(fmt.Sprintf("http://%s/bulk?bytes=%d", s.addr, bytes))
	if err != nil {
		return err
	}
	n, err := readAll(answer)
	if err == nil && n != bytes {
		err = fmt.Errorf("%d bytes of %d", n, bytes)
	}
	return err
}
