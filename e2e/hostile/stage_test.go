package hostile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// served says which port serves a service.
var served = map[string]string{
	api.CoordinatorName: "coordinator", api.CoordinatorAdminName: "coordinator",
	api.ShardName: "shard", api.ShardReadName: "shard", api.ShardAdminName: "shard",
	api.CapacityProviderName: "provider", api.ProviderAdminName: "provider", api.SubstrateControlName: "control",
}

// elsewhere are services that no program of this fleet serves: the console serves its one on loopback to the person who started it, and
// the provider of hosts tests its agents' port itself.
var elsewhere = map[string]bool{api.ConsoleName: true, api.HostAgentName: true}

// rpcs are all RPCs of the contract by procedure.
func rpcs(t *testing.T) map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("bigfleet.v1alpha1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			name := string(service.FullName())
			if elsewhere[name] {
				continue
			}
			if served[name] == "" {
				t.Errorf("no program of this test serves %s: say which one does", name)
			}
			for j := range service.Methods().Len() {
				out["/"+name+"/"+string(service.Methods().Get(j).Name())] = service.Methods().Get(j)
			}
		}
		return true
	})
	return out
}

// stage is a fleet of one coordinator, one shard and one provider, under TLS.
type stage struct {
	t     *testing.T
	ca    *devca.CA
	dir   string
	addrs map[string]string
	procs map[string]*proc.Process
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return newStageOf(t, nil, slots("0.1", 50))
}

// slots is a list of offerings.
func slots(price string, count int) string {
	return fmt.Sprintf("offerings:\n- {name: m, instance_type: m, zone: a, capacity_type: on_demand, count: %d, price_per_hour: %s, resources: {cpu: \"8\", memory: 32Gi}}\n", count, price)
}

// newStageOf starts a shard with flags, and a provider for each list of offerings: provider, provider-2 and so on.
func newStageOf(t *testing.T, flags []string, offerings ...string) *stage {
	t.Helper()
	ca, err := devca.New("hostile")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, ca: ca, dir: t.TempDir(), addrs: map[string]string{}, procs: map[string]*proc.Process{}}
	names := []string{"coordinator", "raft", "coordinator-ops", "shard", "shard-ops"}
	for i := range offerings {
		names = append(names, provider(i), control(i), provider(i)+"-ops")
	}
	ports, err := loopback.ReserveN(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		s.addrs[name] = ports[i].Addr()
		t.Cleanup(ports[i].Release)
	}
	shard := []string{"--id", "shard-0", "--data-dir", s.dir + "/shard", "--listen", s.addrs["shard"], "--coordinator-addr", s.addrs["coordinator"]}
	for i, text := range offerings {
		name := provider(i)
		file := filepath.Join(s.dir, name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run(name, "services/providers/sim/cmd/bigfleet-provider-sim", identity.ID{Kind: identity.Admin}, "--addr", s.addrs[name], "--provider", name, "--offerings", file,
			"--time-scale", "1000", "--data-dir", s.dir+"/"+name, "--sim-control-addr", s.addrs[control(i)])
		shard = append(shard, "--provider-addr", name+"="+s.addrs[name])
	}
	s.run("coordinator", "services/coordinator/cmd/bigfleet-coordinator", identity.ID{Kind: identity.Coordinator, Name: "node-0"}, "--id", "node-0",
		"--data-dir", s.dir+"/coordinator", "--listen", s.addrs["coordinator"], "--raft-bind", s.addrs["raft"], "--bootstrap", "--admin-rate", "-1")
	s.run("shard", "services/shard/cmd/bigfleet-shard", identity.ID{Kind: identity.Shard, Name: "shard-0"}, append(shard, flags...)...)
	return s
}

// provider and control name the i-th provider and its port for faults.
func provider(i int) string { return numbered("provider", i) }
func control(i int) string  { return numbered("control", i) }

func numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprint(name, "-", i+1)
}

func (s *stage) run(name, program string, id identity.ID, args ...string) {
	s.t.Helper()
	files := s.files(id)
	args = append([]string{"--log-level", "warn", "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA, "--metrics-addr", s.addrs[name+"-ops"]}, args...)
	var env []string
	if strings.HasPrefix(name, "provider") { // as its chart does
		env = []string{fmt.Sprintf("GOMEMLIMIT=%d000000", limit(s.t, name)>>20)}
	}
	s.procs[name] = proc.StartT(s.t, proc.Config{Name: name, Path: proc.BuildT(s.t, program), Args: args, Env: env, Ready: proc.HTTP("http://"+s.addrs[name+"-ops"]+"/healthz", nil)})
}

func (s *stage) files(id identity.ID) identity.Files {
	s.t.Helper()
	name := strings.NewReplacer("/", "-", ":", "").Replace(id.String())
	f, err := s.ca.Write(s.dir, name, devca.For(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// limit is the memory limit that a program has in its chart.
func limit(t *testing.T, program string) int64 {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	chart, path := "bigfleet", []string{program, "resources", "limits", "memory"}
	if strings.HasPrefix(program, "provider") {
		chart, path = "bigfleet-provider-library", []string{"exports", "defaults", "resources", "limits", "memory"}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "charts", chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for _, key := range path {
		m, _ := values.(map[string]any)
		values = m[key]
	}
	q, err := resource.ParseQuantity(fmt.Sprint(values))
	if err != nil {
		t.Fatalf("%s of chart %s: %v", strings.Join(path, "."), chart, err)
	}
	return q.Value()
}

// unharmed fails when a program ended, panicked, or once needed more memory than its chart allows.
func (s *stage) unharmed() {
	s.t.Helper()
	for name, p := range s.procs {
		if !p.Running() {
			s.t.Errorf("%s ended", name)
			continue
		}
		if log, err := os.ReadFile(p.LogFile()); err != nil {
			s.t.Error(err)
		} else if at := max(bytes.Index(log, []byte("panic: ")), bytes.Index(log, []byte("stack="))); at >= 0 {
			s.t.Errorf("%s panicked: %.2000s", name, log[at:])
		}
		peak, err := p.PeakResidentBytes()
		if err != nil {
			s.t.Log(err)
			continue
		}
		s.t.Logf("%s: at most %d MiB of %d", name, peak>>20, limit(s.t, name)>>20)
		if peak > limit(s.t, name) {
			s.t.Errorf("%s needed %d MiB, and its chart gives it %d", name, peak>>20, limit(s.t, name)>>20)
		}
	}
}
