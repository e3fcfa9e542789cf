package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// world is the backend over a model of AWS, and the machines of its books.
type world struct {
	*testing.T
	m     *model
	b     *backend
	books map[string]provider.Machine
}

func (w *world) StoreID() string                            { return "store" }
func (w *world) Machines() iter.Seq[provider.Machine]       { return maps.Values(w.books) }
func (w *world) Machine(id string) (provider.Machine, bool) { m, ok := w.books[id]; return m, ok }

func newWorld(t *testing.T, change func(*settings), offerings ...provider.Offering) *world {
	t.Helper()
	m, err := newModel("", 4*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return newWorldOver(t, m, m.cloud(), change, offerings...)
}

// newWorldOver is a world whose backend calls api, behind which is m.
func newWorldOver(t *testing.T, m *model, api cloud, change func(*settings), offerings ...provider.Offering) *world {
	t.Helper()
	s := program().Config
	s.LaunchTemplate.Name, s.Region = "nodes", api.region
	if change != nil {
		change(&s)
	}
	b, err := newBackend(Config{Name: "aws", settings: s, cloud: api, Offerings: offerings, Log: slog.New(slog.DiscardHandler), poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, m, b, map[string]provider.Machine{}}
	b.Attach(w)
	return w
}

func machine(id, kind, zone string, c provider.CapacityType) provider.Machine {
	return provider.Machine{ID: id, Offering: "o", Attributes: provider.Attributes{InstanceType: kind, Zone: zone, CapacityType: c}}
}

var large = machine("aws-large-0", "m5.large", "us-east-1a", provider.OnDemand)

// repeat does what the SDK does with transient errors, without its pauses.
func (w *world) repeat(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	for {
		err := do(ctx)
		if class, _ := provider.ClassOf(err); class != provider.ClassTransient || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// create launches the machine and books it.
func (w *world) create(m provider.Machine, operation string) (provider.Machine, error) {
	w.Helper()
	var h provider.Host
	err := w.repeat(func(ctx context.Context) (err error) {
		h, err = w.b.Create(ctx, provider.CreateOp{ID: operation, Machine: m, Provider: "aws", StoreID: "store"})
		return err
	})
	m.HostRef, m.State = h.Ref, lifecycle.Idle
	if err == nil {
		w.books[m.ID] = m
	}
	return m, err
}

func (w *world) made(m provider.Machine) *modelInstance {
	w.Helper()
	id, err := instanceID(m.HostRef)
	if err != nil {
		w.Fatal(err)
	}
	return w.m.Instances[id]
}

func (w *world) configure(m provider.Machine, operation, cluster string) error {
	return w.repeat(func(ctx context.Context) error {
		return w.b.Configure(ctx, provider.ConfigureOp{ID: operation, Machine: m, Cluster: cluster, Blob: []byte("#!/bin/sh\n# boot " + cluster)})
	})
}

func (w *world) drain(m provider.Machine, operation, cluster string) error {
	return w.repeat(func(ctx context.Context) error {
		return w.b.Drain(ctx, provider.DrainOp{ID: operation, Machine: m, Cluster: cluster})
	})
}

func (w *world) describe() (out []provider.Host) {
	w.Helper()
	if err := w.b.Describe(w.Context(), func(h provider.Host) error { out = append(out, h); return nil }); err != nil {
		w.Fatal(err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// PROV-28.9, 28.10, 28.11: a machine is tagged at its launch, hands nothing of one cluster to the next, and ends as terminated.
func TestLife(t *testing.T) {
	w := newWorld(t, nil)
	m, err := w.create(large, "op-1")
	must(t, err)
	i := w.made(m)
	if want := "aws:///us-east-1a/" + i.ID; m.HostRef != want {
		t.Errorf("the host is %s, a Node will say %s", m.HostRef, want)
	}
	for tag, want := range map[string]string{tagProvider: "aws", tagStore: "store", tagMachine: m.ID, tagOperation: "op-1"} {
		if i.Tags[tag] != want {
			t.Errorf("tag %s is %q, want %q", tag, i.Tags[tag], want)
		}
	}
	for n, cluster := range []string{"red", "it's blue"} {
		must(t, w.configure(m, fmt.Sprint("configure-", n), cluster))
		must(t, w.b.Bind(t.Context(), m, provider.Binding{Cluster: cluster, Metadata: map[string]string{"need": "a"}}))
		if got := w.describe()[0].Binding; got == nil || got.Cluster != cluster || got.Metadata["need"] != "a" {
			t.Errorf("the tags say %+v", got)
		}
		if i.Disk["operation"] != fmt.Sprint("configure-", n) {
			t.Errorf("the host was given %v", i.Disk)
		}
		must(t, w.drain(m, fmt.Sprint("drain-", n), cluster))
		must(t, w.b.Unbind(t.Context(), m))
		if len(i.Disk) > 0 || i.Root != n+2 {
			t.Errorf("after a drain root volume %d holds %v", i.Root, i.Disk)
		}
		if h := w.describe()[0]; h.Binding != nil {
			t.Errorf("after a drain the tags still say %+v", h.Binding)
		}
	}
	must(t, w.b.Delete(t.Context(), provider.DeleteOp{ID: "delete", Machine: m, StoreID: "store"}))
	if s := w.m.state(i); s != types.InstanceStateNameTerminated || len(w.describe()) > 0 {
		t.Errorf("after Delete the instance is %s, described %v", s, w.describe())
	}
	must(t, w.b.Delete(t.Context(), provider.DeleteOp{ID: "again", Machine: m, StoreID: "store"}))
}

// PROV-7, PROV-28.11: an operation that is repeated launches, boots and resets once.
func TestOnce(t *testing.T) {
	w := newWorld(t, nil)
	m, err := w.create(large, "op")
	must(t, err)
	again, err := w.create(large, "op")
	must(t, err)
	if again.HostRef != m.HostRef || len(w.m.Instances) != 1 {
		t.Fatalf("two launches: %s, %s", m.HostRef, again.HostRef)
	}
	for range 2 {
		must(t, w.configure(m, "c", "red"))
	}
	for range 2 {
		must(t, w.drain(m, "d", "red"))
	}
	if i := w.made(m); i.Root != 2 {
		t.Errorf("the instance has had %d root volumes, want 2", i.Root)
	}
}

// PROV-28.11: a Create that failed half-way is found by the machine's tag and ended, one of another store is not.
func TestDeleteByTag(t *testing.T) {
	w := newWorld(t, nil)
	m, err := w.create(large, "op")
	must(t, err)
	i := w.made(m)
	m.HostRef = ""
	must(t, w.b.Delete(t.Context(), provider.DeleteOp{ID: "x", Machine: m, StoreID: "another"}))
	if i.State != types.InstanceStateNameRunning {
		t.Fatal("the instance of another store was ended")
	}
	must(t, w.b.Delete(t.Context(), provider.DeleteOp{ID: "x", Machine: m, StoreID: "store"}))
	if i.State != types.InstanceStateNameTerminated {
		t.Errorf("the instance is %s", i.State)
	}
}

// PROV-11.11, 15.6: a pool without capacity says so by its class, and is not asked again at once; other pools are.
func TestEmptyPool(t *testing.T) {
	w := newWorld(t, nil)
	now := time.Now()
	w.b.empty.now = func() time.Time { return now }
	w.m.empty[poolKey{instanceType: "m5.large", zone: "us-east-1a"}] = true
	for n := range 3 {
		_, err := w.create(large, fmt.Sprint("op-", n))
		if class, _ := provider.ClassOf(err); class != provider.ClassCapacity {
			t.Fatalf("an empty pool: %v (%s)", err, class)
		}
	}
	if n := w.m.calls["ec2.CreateFleet"]; n != 1 {
		t.Errorf("an empty pool was asked %d times", n)
	}
	if _, err := w.create(machine("aws-large-b-0", "m5.large", "us-east-1b", provider.OnDemand), "other-zone"); err != nil {
		t.Errorf("another zone: %v", err)
	}
	if n := w.b.empty.count(); n != 1 {
		t.Errorf("%d pools are empty, want 1", n)
	}
	now = now.Add(emptyPause)
	w.m.empty = map[poolKey]bool{}
	_, err := w.create(large, "later")
	must(t, err)
}

// PROV-9.4: a reserved machine is launched into its reservation.
func TestReservation(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.Reservations = map[string]string{"o": "cr-1"} })
	m, err := w.create(machine("aws-r-0", "m5.large", "us-east-1a", provider.Reserved), "op")
	must(t, err)
	if i := w.made(m); i.Reservation != "cr-1" || i.Tags[tagMachine] != m.ID {
		t.Errorf("launched as %+v", i)
	}
}

// A warm machine is a stopped instance: Configure starts it, Drain stops it again. Spot cannot be stopped.
func TestStopped(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.Idle = idleStopped })
	m, err := w.create(large, "op")
	must(t, err)
	spot, err := w.create(machine("aws-spot-0", "m5.large", "us-east-1b", provider.Spot), "op-spot")
	must(t, err)
	state := func(m provider.Machine) types.InstanceStateName { return w.m.state(w.made(m)) }
	if state(m) != types.InstanceStateNameStopped || state(spot) != types.InstanceStateNameRunning {
		t.Fatalf("idle: on demand is %s, spot %s", state(m), state(spot))
	}
	must(t, w.configure(m, "c", "red"))
	if state(m) != types.InstanceStateNameRunning {
		t.Fatalf("configured: %s", state(m))
	}
	must(t, w.drain(m, "d", "red"))
	if state(m) != types.InstanceStateNameStopped {
		t.Errorf("drained: %s", state(m))
	}
}

// PROV-28.9: what a new root volume does not clean is refused, or erased by a stop.
func TestOtherDisks(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.create(machine("aws-g4dn-0", "g4dn.8xlarge", "us-east-1a", provider.Spot), "spot")
	if err == nil || !strings.Contains(err.Error(), "local disks") {
		t.Errorf("spot with local disks: %v", err)
	}
	m, err := w.create(machine("aws-g4dn-1", "g4dn.8xlarge", "us-east-1a", provider.OnDemand), "on-demand")
	must(t, err)
	must(t, w.configure(m, "c", "red"))
	must(t, w.drain(m, "d", "red"))
	if s := w.m.state(w.made(m)); s != types.InstanceStateNameStopped {
		t.Errorf("local disks are erased by a stop, and the instance is %s", s)
	}
	one, err := w.create(large, "volumes")
	must(t, err)
	must(t, w.configure(one, "c1", "red"))
	i := w.made(one)
	w.m.mu.Lock()
	i.Extra = []string{"vol-of-a-pod"}
	w.m.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	w.m.fault = func(name string) (error, error) {
		if name == "ec2.DescribeInstances" && i.Root > 1 { // the root volume is new, and the cluster still has to take its volume away
			if looks++; looks == 3 {
				cancel()
			}
		}
		return nil, nil
	}
	err = w.b.Drain(ctx, provider.DrainOp{ID: "d1", Machine: one, Cluster: "red"})
	if err == nil || !strings.Contains(err.Error(), "vol-of-a-pod") {
		t.Errorf("a drain with a volume attached: %v", err)
	}
	w.m.mu.Lock()
	i.Extra, w.m.fault = nil, nil
	w.m.mu.Unlock()
	must(t, w.drain(one, "d1", "red"))
}

// life takes one machine through all of its states.
func (w *world) life() error {
	m, err := w.create(large, "create")
	if err != nil {
		return err
	}
	if err := w.configure(m, "configure", "red"); err != nil {
		return err
	}
	if err := w.repeat(func(ctx context.Context) error { return w.b.Bind(ctx, m, provider.Binding{Cluster: "red"}) }); err != nil {
		return err
	}
	if err := w.drain(m, "drain", "red"); err != nil {
		return err
	}
	if err := w.repeat(func(ctx context.Context) error { return w.b.Unbind(ctx, m) }); err != nil {
		return err
	}
	return w.repeat(func(ctx context.Context) error {
		return w.b.Delete(ctx, provider.DeleteOp{ID: "delete", Machine: m, StoreID: "store"})
	})
}

// PROV-15.6, 19: any call of AWS may fail, before or after it had its effect. Throttling, outages and lost answers are repeated and
// end well with one effect; a refusal ends the operation with its class.
func TestFaults(t *testing.T) {
	stopped := func(s *settings) { s.Idle = idleStopped }
	clean := newWorld(t, stopped)
	must(t, clean.life())
	var names []string
	for name := range clean.m.calls {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) < 10 {
		t.Fatalf("a life makes the calls %v only", names)
	}
	for _, name := range names {
		for what, fault := range map[string][2]error{ // before the effect, after it
			"throttled": {apiError("RequestLimitExceeded", "slow down"), nil}, "away": {apiError("ServiceUnavailable", "away"), nil},
			"answer lost": {nil, errors.New("connection reset by peer")},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, stopped)
				failed := false
				w.m.fault = func(called string) (before, after error) {
					if called != name || failed {
						return nil, nil
					}
					failed = true
					return fault[0], fault[1]
				}
				must(t, w.life())
				if !failed {
					t.Fatal("the call was not made")
				}
				live := 0
				for _, i := range w.m.Instances {
					if i.State != types.InstanceStateNameTerminated {
						live++
					}
				}
				if len(w.m.Instances) != 1 || live != 0 {
					t.Errorf("%d instances were launched and %d are left", len(w.m.Instances), live)
				}
			})
		}
		t.Run(name+" refused", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stopped)
			w.m.fault = func(called string) (before, after error) {
				if called == name {
					return apiError("UnauthorizedOperation", "You are not authorized to perform this operation"), nil
				}
				return nil, nil
			}
			err := w.life()
			if class, _ := provider.ClassOf(err); class != provider.ClassCredentials || !strings.Contains(err.Error(), "not authorized") {
				t.Errorf("%v is %s", err, class)
			}
		})
	}
}

// PROV-15.6: the codes of AWS's references mean what the shard acts on, also where the code is in the state reason of an instance.
func TestClasses(t *testing.T) {
	for code, want := range map[string]provider.Class{
		"InsufficientInstanceCapacity": provider.ClassCapacity, "UnfulfillableCapacity": provider.ClassCapacity, "ReservationCapacityExceeded": provider.ClassCapacity,
		"InsufficientFreeAddressesInSubnet": provider.ClassCapacity, "VcpuLimitExceeded": provider.ClassQuota, "MaxSpotInstanceCountExceeded": provider.ClassQuota,
		"RequestLimitExceeded": provider.ClassTransient, "ThrottlingException": provider.ClassTransient, "InternalError": provider.ClassTransient,
		"UnauthorizedOperation": provider.ClassCredentials, "ExpiredToken": provider.ClassCredentials, "InvalidParameterValue": provider.ClassPermanent,
		"InvalidLaunchTemplateName.NotFoundException": provider.ClassPermanent,
	} {
		if got, _ := provider.ClassOf(classify(apiError(code, "x"))); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
	if got, _ := provider.ClassOf(classify(errors.New("dial tcp: i/o timeout"))); got != provider.ClassTransient {
		t.Errorf("no answer is %s", got)
	}
	reason := "Server.InsufficientInstanceCapacity: Insufficient capacity to satisfy instance request"
	err := newWorld(t, nil).b.endedError("i-1", &types.Instance{State: &types.InstanceState{Name: types.InstanceStateNameTerminated}, StateReason: &types.StateReason{Message: &reason}})
	if got, _ := provider.ClassOf(err); got != provider.ClassCapacity {
		t.Errorf("%v is %s", err, got)
	}
}

// PROV-28.3: the policy in deploy/aws allows exactly the calls that this provider makes.
func TestPolicy(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/aws/policy.json")
	must(t, err)
	var policy struct {
		Statement []struct {
			Effect   string
			Action   []string
			Resource any
		}
	}
	must(t, json.Unmarshal(text, &policy))
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		if s.Effect != "Allow" {
			t.Errorf("effect %q", s.Effect)
		}
		for _, a := range s.Action {
			if strings.Contains(a, "*") {
				t.Errorf("%s allows more than one call", a)
			}
			allowed[a] = true
		}
	}
	needed := map[string]bool{"iam:PassRole": true} // of the launch template's instance profile
	for prefix, api := range map[string]reflect.Type{
		"ec2": reflect.TypeFor[ec2API](), "ssm": reflect.TypeFor[ssmAPI](), "sqs": reflect.TypeFor[sqsAPI](), "pricing": reflect.TypeFor[pricingAPI](),
		"savingsplans": reflect.TypeFor[savingsAPI](),
	} {
		for n := range api.NumMethod() {
			needed[prefix+":"+api.Method(n).Name] = true
		}
	}
	for a := range needed {
		if !allowed[a] {
			t.Errorf("the policy does not allow %s", a)
		}
	}
	for a := range allowed {
		if !needed[a] {
			t.Errorf("the policy allows %s, which is never called", a)
		}
	}
}

// PROV-28.7: the script that Systems Manager runs is one that a shell understands: it gives the hook the boot data and the cluster as they are, and once
// for an operation.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	blob, cluster := "#!/bin/sh\necho \"$HOME\" 'x'\n\x00\xff", "it's $(blue) \"team\""
	must(t, os.WriteFile(filepath.Join(dir, "bootstrap"), []byte("#!/bin/sh\nprintf %s \"$1\" > "+dir+"/cluster\ncat > "+dir+"/blob\necho run >> "+dir+"/runs\n"), 0o755))
	lines, err := bootScript("op-1", cluster, []byte(blob))
	must(t, err)
	script := strings.ReplaceAll(strings.ReplaceAll(strings.Join(lines, "\n"), "/var/lib/bigfleet", dir+"/state"), hook, dir+"/bootstrap")
	for range 2 {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for file, want := range map[string]string{"cluster": cluster, "blob": blob, "runs": "run\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
}

// PROV-28.8: what a failed hook said is reported, at most 1 KiB of its end and without secrets.
func TestFailedHook(t *testing.T) {
	w := newWorld(t, nil)
	m, err := w.create(large, "op")
	must(t, err)
	w.m.hookError = strings.Repeat("noise ", 400) + "kubeadm join --token abcdef.0123456789abcdef failed: connection refused"
	err = w.configure(m, "c", "red")
	class, _ := provider.ClassOf(err)
	if class != provider.ClassBootstrap || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "abcdef.01") || len(err.Error()) > wordsMax+200 {
		t.Errorf("%s: %v", class, err)
	}
}
