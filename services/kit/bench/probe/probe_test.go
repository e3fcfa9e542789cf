package probe

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// TestMain lets the test binary be the client process of P-conn.
func TestMain(m *testing.M) {
	if addr := os.Getenv("PROBE_CONN_ADDR"); addr != "" {
		n, err := strconv.Atoi(os.Getenv("PROBE_CONN_COUNT"))
		if err != nil {
			os.Exit(2)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() { // until the parent closes our stdin
			_, _ = os.Stdin.Read(make([]byte, 1))
			cancel()
		}()
		if OpenConns(ctx, addr, n, func() { fmt.Println("ready") }) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func run(f measure.Floor) {
	for _, p := range f.Parts {
		if p.Prepare != nil {
			p.Prepare()
		}
		p.Run()
	}
}

// A floor does what it says: its answers are right.
func TestScanFindsTheMinimum(t *testing.T) {
	state, class, price := []uint8{3, 1, 3, 3}, []uint16{0, 0, 1, 0}, []uint32{9, 1, 2, 7}
	if got := scan(state, class, price, 3, []bool{true, false}); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
	if got := scan(state, class, price, 2, []bool{true, true}); got != ^uint32(0) {
		t.Errorf("nothing matches, got %d", got)
	}
	run(Scan(state, class, price, 3, []bool{true, true}))
}

func TestClaimWritesOwners(t *testing.T) {
	owner := []int32{-1, -1, -1, -1, -1}
	claim([]uint16{0, 1, 0}, [][]uint32{{4, 2}, {0, 1, 3}}, make([]int, 2), owner, 2)
	if want := []int32{1, 1, 2, -1, 2}; !slices.Equal(owner, want) {
		t.Errorf("owners %v, want %v", owner, want)
	}
	run(Claim(100, 8, 1_000, 16, 1))
}

// Fresh data for each sort: sorting what is sorted measures something else.
func TestSortIsFresh(t *testing.T) {
	keys, work := []uint64{3, 1, 2}, make([]uint64, 3)
	f := sortOf(keys, work)
	for range 2 {
		f.Parts[0].Prepare()
		if !slices.Equal(work, keys) {
			t.Fatalf("before the sort: %v", work)
		}
		f.Parts[0].Run()
		if !slices.IsSorted(work) {
			t.Fatalf("after the sort: %v", work)
		}
	}
	run(Sort(1_000, 1))
}

func TestMemoryProbesRun(t *testing.T) {
	page := &pb.MachineList{Machines: []*pb.Machine{{Id: "a"}, {Id: "b"}}}
	data, err := proto.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	run(measure.Sum(Copy(), Unmarshal([][]byte{data, data}, func() proto.Message { return new(pb.MachineList) }), Marshal(page),
		Hash(1_000, 1), Domain([]uint16{0, 1, 1}, []uint8{0, 0, 1}, [][]int32{{1, 2}, {3, 0}}, 2)))
}

// P-flat is 72 bytes with ids of 24: nothing else is kept alive.
func TestFlatBytes(t *testing.T) {
	ids := make([]string, 100_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("i-%022x", i)
	}
	if got := FlatBytes(ids); got < 72 || got > 74 {
		t.Errorf("%.2f bytes a machine, want 72", got)
	}
}

func TestIOProbes(t *testing.T) {
	call, err := Call(3)
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	rtt, err := RTT(3)
	if err != nil {
		t.Fatal(err)
	}
	defer rtt.Close()
	dir := t.TempDir()
	fsync, err := Fsync(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	run(measure.Sum(call, rtt, fsync))
	info, err := os.Stat(dir + "/p-fsync")
	if err != nil || info.Size() != 2*fsyncBytes {
		t.Errorf("%v, %v", info, err)
	}
	fsync.Close()
	if _, err := os.Stat(dir + "/p-fsync"); err == nil {
		t.Error("the file stays")
	}
	if _, err := Fsync(dir+"/none", 1); err == nil {
		t.Error("a missing directory was taken")
	}
	latencies, err := CallLatencies(5)
	if err != nil || len(latencies) != 5 || slices.Min(latencies) <= 0 {
		t.Errorf("%v, %v", latencies, err)
	}
}

// P-conn: the streams are held by another process, so this one's memory is the server's alone.
func TestConns(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := ServeConns(ln)
	defer s.Close()
	const n = 20
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "PROBE_CONN_ADDR="+ln.Addr().String(), "PROBE_CONN_COUNT="+strconv.Itoa(n))
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	if got := s.Open(); got != n {
		t.Errorf("%d streams are open, want %d", got, n)
	}
	_ = stdin.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
