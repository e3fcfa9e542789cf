package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// asProgram, in the environment, makes this test binary the provider.
const asProgram = "BIGFLEET_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		provider.Main(provider.Program[settings]{Name: "bench", Build: build, Catalogue: provider.GeneralCatalogue})
		return
	}
	if machine := os.Getenv(asBare); machine != "" {
		fmt.Fprintln(os.Stderr, serveBare(machine))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// scaled is a size of the programme, or a part of it where BIGFLEET_BENCH_SCALE asks for less (make bench-ci).
func scaled(n int) int {
	if by, err := strconv.Atoi(os.Getenv("BIGFLEET_BENCH_SCALE")); err == nil && by > 1 {
		return max(n/by, 100_000) // fewer do not last for the rounds
	}
	return n
}

// scaledBatch is a number of calls of a part of a round, or a third of it where less is asked for.
func scaledBatch(n int) int {
	if os.Getenv("BIGFLEET_BENCH_SCALE") != "" {
		return n / 3
	}
	return n
}

type settings struct {
	Hosts int           `yaml:"hosts"`
	Took  time.Duration `yaml:"took"`
}

func build(_ context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	b := &backend{took: s.Config.Took, refs: make([]string, s.Config.Hosts)}
	for i := range b.refs {
		b.refs[i] = fmt.Sprintf("bench://%09d", i)
	}
	for zone := range 3 {
		b.shapes[zone] = &provider.Attributes{
			InstanceType: "metal.8xlarge", Zone: "rack-" + strconv.Itoa(zone), CapacityType: provider.BareMetal,
			Resources: map[string]string{"cpu": "32", "memory": "128Gi"}, Labels: map[string]string{"topology.kubernetes.io/region": "local"},
		}
	}
	return b, []provider.Option{provider.WithReadiness(provider.SubstrateReadiness())}, nil
}

// backend is a cloud that takes a constant time and has hosts of its own that never change.
type backend struct {
	took   time.Duration
	refs   []string
	shapes [3]*provider.Attributes
}

func (b *backend) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.took):
		return nil
	}
}

func (b *backend) Describe(_ context.Context, found func(provider.Host) error) error {
	for i, ref := range b.refs {
		if err := found(provider.Host{Ref: ref, Attributes: b.shapes[i%len(b.shapes)]}); err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	return provider.Host{Ref: "bench://" + op.ID, MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}, b.wait(ctx)
}

func (b *backend) Configure(ctx context.Context, _ provider.ConfigureOp) error { return b.wait(ctx) }
func (b *backend) Drain(ctx context.Context, _ provider.DrainOp) error         { return b.wait(ctx) }
func (b *backend) Delete(ctx context.Context, _ provider.DeleteOp) error       { return b.wait(ctx) }
func (b *backend) Ready(context.Context, provider.Machine) error               { return nil }

// took is how long the substrate needs for anything.
const took = 50 * time.Millisecond

// fleet is a running provider with its callers.
type fleet struct {
	bigfleetv1alpha1connect.CapacityProviderClient
	process *conformance.Process
	http    *http.Client // of mutations and Gets
	bulk    *http.Client // of Lists: a connection of their own, as a reader of whole fleets has
	metrics string
	slots   []string // not yet created

	mu   sync.Mutex
	sent int64
}

// start runs a provider with that many slots and hosts on an empty disk, until it answers.
func start(b *testing.B, slots, hosts int, args ...string) *fleet {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	config := b.TempDir() + "/config.yaml"
	// Rounds are asked for by the benchmark of rounds alone; slots that no request names are not described.
	text := fmt.Sprintf("hosts: %d\ntook: %s\nlog: {level: error}\nserver: {pprof: true}\n", hosts, took)
	if slots > 0 {
		text += fmt.Sprintf("seed_count: %d\n", slots)
	} else {
		text += "offerings:\n- {instance_type: none, zone: a, capacity_type: reserved, count: 1, resources: {cpu: \"1\"}}\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	f := &fleet{
		http: cleartext(), bulk: cleartext(),
		process: &conformance.Process{Path: self, Dir: b.TempDir(), Env: []string{asProgram + "=1", "GOMAXPROCS=2"}, Args: append([]string{"--config", config}, args...), Wait: 5 * time.Minute},
	}
	f.process.StartT(b)
	b.Cleanup(f.http.CloseIdleConnections)
	b.Cleanup(f.bulk.CloseIdleConnections)
	f.dial()
	return f
}

// cleartext is a client with one HTTP/2 connection to each address.
func cleartext() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true}}
}

func (f *fleet) dial() {
	f.CapacityProviderClient = bigfleetv1alpha1connect.NewCapacityProviderClient(f.http, "http://"+f.process.Addr(), connect.WithGRPC())
}

// take hands out n slots. When there are too few, machines that were created before are given back, so that a benchmark can have
// any number of rounds.
func (f *fleet) take(b *testing.B, n int) []string {
	b.Helper()
	if f.slots == nil {
		f.slots = f.in(b, pb.MachineState_MACHINE_STATE_SPECULATIVE)
	}
	if len(f.slots) < n {
		f.giveBack(b, max(n, 20_000))
	}
	if len(f.slots) < n {
		b.Fatalf("%d slots are left, want %d: more machines", len(f.slots), n)
	}
	out := f.slots[:n]
	f.slots = f.slots[n:]
	return out
}

// giveBack deletes that many machines and waits until they are slots again.
func (f *fleet) giveBack(b *testing.B, most int) {
	b.Helper()
	rest()
	idle := f.in(b, pb.MachineState_MACHINE_STATE_IDLE)
	idle = idle[:min(most, len(idle))]
	var t times
	together(callers, idle, &t, f.remove)
	if err := t.failed(); err != nil {
		b.Fatal(err)
	}
	for {
		rest()
		if f.slots = f.in(b, pb.MachineState_MACHINE_STATE_SPECULATIVE); len(f.in(b, pb.MachineState_MACHINE_STATE_DELETING)) == 0 {
			break
		}
	}
	rest()
}

func (f *fleet) in(b *testing.B, state pb.MachineState) (ids []string) {
	b.Helper()
	for _, m := range f.list(b, &pb.ListFilter{States: []pb.MachineState{state}}).GetMachines() {
		ids = append(ids, m.GetId())
	}
	return ids
}

// sequence is the next number of the one shard that calls.
func (f *fleet) sequence() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	return f.sent
}

func (f *fleet) create(id string) error {
	ack, err := f.Create(context.Background(), connect.NewRequest(&pb.CreateRequest{MachineId: id, ShardId: "bench", ShardEpoch: 1, SequenceNumber: f.sequence()}))
	if err == nil && ack.Msg.GetOperationId() == "" {
		err = errors.New("an ack without an operation id")
	}
	return err
}

func (f *fleet) remove(id string) error {
	_, err := f.Delete(context.Background(), connect.NewRequest(&pb.DeleteRequest{MachineId: id, ShardId: "bench", ShardEpoch: 1, SequenceNumber: f.sequence()}))
	return err
}

// raw sends a List by the Connect protocol and returns the bytes of the answer without decoding them.
func (f *fleet) raw(filter *pb.ListFilter, into io.Writer) (int64, error) {
	body, err := proto.Marshal(filter)
	if err != nil {
		return 0, err
	}
	answer, err := f.bulk.Post("http://"+f.process.Addr()+bigfleetv1alpha1connect.CapacityProviderListProcedure, "application/proto", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	return copyAll(answer, into)
}

func copyAll(answer *http.Response, into io.Writer) (int64, error) {
	n, err := io.Copy(into, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(answer.Status))
	}
	return n, errors.Join(err, answer.Body.Close())
}

func readAll(answer *http.Response) (int64, error) { return copyAll(answer, io.Discard) }

func (f *fleet) list(b *testing.B, filter *pb.ListFilter) *pb.MachineList {
	b.Helper()
	var text bytes.Buffer
	if _, err := f.raw(filter, &text); err != nil {
		b.Fatal(err)
	}
	all := &pb.MachineList{}
	if err := proto.Unmarshal(text.Bytes(), all); err != nil {
		b.Fatal(err)
	}
	return all
}

// value reads a metric of the provider, the sum of its series.
func (f *fleet) value(b *testing.B, name string) (sum float64) {
	b.Helper()
	answer, err := http.Get(f.metrics)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok && (strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, " ")) {
			v, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// times collects how long single calls took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
	err error
}

func (t *times) of(do func() error) { t.since(time.Now(), do) }

// since counts from when the call was due, so that waiting for others counts too.
func (t *times) since(begin time.Time, do func() error) {
	err := do()
	took := time.Since(begin)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all, t.err = append(t.all, took), errors.Join(t.err, err)
}

// quantile is in ns.
func (t *times) quantile(q float64) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sorted := slices.Sorted(slices.Values(t.all))
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func (t *times) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// paced sends one call per id at a constant rate, each at its time whether or not the last was answered, and at most so many
// at once.
func paced(callers int, every time.Duration, ids []string, t *times, call func(id string) error) {
	places := make(chan struct{}, callers)
	var all sync.WaitGroup
	begin := time.Now()
	for i, id := range ids {
		due := begin.Add(time.Duration(i) * every)
		time.Sleep(time.Until(due))
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			t.since(due, func() error { return call(id) })
		})
	}
	all.Wait()
}

// together runs one call per id, from that many callers.
func together(callers int, ids []string, t *times, call func(id string) error) {
	work := make(chan string)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for id := range work {
				t.of(func() error { return call(id) })
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	all.Wait()
}
