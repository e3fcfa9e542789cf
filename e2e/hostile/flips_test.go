package hostile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// kindOfFile is a file that a program keeps in its data directory.
type kindOfFile struct {
	name string // matches the path in the directory
	// atStart says that damage is found when the program starts. Otherwise why says who does.
	atStart bool
	why     string // it is not
}

// kinds are all files that programs keep. Operators, Pod controllers and consoles keep none: what they know is in the API server of their cluster
// or comes again. A coordinator's snapshots are flipped byte by byte in the test of its store; this fleet is too young to have one. The walk over a running fleet fails for one that is not listed.
var kinds = map[string][]kindOfFile{
	"coordinator": {
		{`raft/log/[0-9-]+\.seg`, true, ""}, {`raft/log/mark`, true, ""}, {`raft/stable`, true, ""},
		{`lock`, false, "the program does not read it"},
	},
	"shard": {
		{`epoch`, true, ""}, {`shard\.db`, true, ""},
		{`decisions/[0-9-]+\.log`, false, "history reads it, and says that records are missing"},
		{`lock`, false, "the program does not read it"},
	},
	"provider": {{`provider\.db`, true, ""}, {`provider\.db\.log[01]`, true, ""}},
}

// Every kind of file that a running fleet keeps is listed, and a flipped bit in it is repaired, or refused at the start in a sentence that
// names the file or its directory. It never changes what the program says, and never ends in a stack. BIGFLEET_FLIPS is how many bits of
// each file are flipped, one at a time; the tests of the stores flip every one.
func TestFlippedBitsOfEveryKindOfFile(t *testing.T) {
	flips, seed := environment(t, "BIGFLEET_FLIPS", 3), environment(t, "BIGFLEET_HOSTILE_SEED", uint64(time.Now().Unix()))
	t.Logf("BIGFLEET_HOSTILE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	s := newStage(t)
	s.makeState()
	before := map[string]string{}
	for name := range s.procs {
		before[name] = s.truth(name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.procs)) {
		s.procs[name].Kill() // a clean stop would tidy up
	}
	for _, name := range []string{"provider", "coordinator", "shard"} { // each starts with those before it running
		dir, intact, seen := filepath.Join(s.dir, name), filepath.Join(t.TempDir(), name), map[string]bool{}
		copyDir(t, dir, intact)
		for _, file := range filesOf(t, intact) {
			kind := slices.IndexFunc(kinds[name], func(k kindOfFile) bool { return regexp.MustCompile("^(" + k.name + ")$").MatchString(file) })
			if kind < 0 {
				t.Errorf("%s keeps %s: list it, and say what a flipped bit in it means", name, file)
				continue
			}
			k := kinds[name][kind]
			seen[k.name] = true
			data, err := os.ReadFile(filepath.Join(intact, file))
			if err != nil {
				t.Fatal(err)
			}
			for range flips {
				if len(data) == 0 || !k.atStart {
					break
				}
				bit := random.IntN(8 * len(data))
				copyDir(t, intact, dir)
				damaged := slices.Clone(data)
				damaged[bit/8] ^= 1 << (bit % 8)
				if err := os.WriteFile(filepath.Join(dir, file), damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				if said := s.startDamaged(name, before[name]); said != "" {
					t.Errorf("seed %d: %s with bit %d of %d of %s flipped: %s", seed, name, bit, 8*len(data), file, said)
				}
			}
		}
		for _, k := range kinds[name] {
			if !seen[k.name] {
				t.Errorf("%s kept no %s: the fleet of this test does not make it", name, k.name)
			}
		}
		copyDir(t, intact, dir)
		if err := s.procs[name].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// makeState gives each program something that it must not forget.
func (s *stage) makeState() {
	s.t.Helper()
	who, shard0 := s.caller(admin), s.caller(identity.ID{Kind: identity.Shard, Name: "shard-0"})
	ctx := s.t.Context()
	coordinator := api.NewCoordinatorAdminClient(who.http, "https://"+s.addrs["coordinator"])
	bind := &pb.BindClusterRequest{ClusterId: "red", ShardId: "shard-0"}
	_, err := coordinator.BindCluster(ctx, connect.NewRequest(bind))
	// The replica has not elected itself, has just done so (COORD-6.1.2), or the shard has not reported yet.
	early := func() bool {
		return slices.Contains([]connect.Code{connect.CodeFailedPrecondition, connect.CodeUnavailable, connect.CodeNotFound}, connect.CodeOf(err))
	}
	for end := time.Now().Add(time.Minute); err != nil && early() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, err = coordinator.BindCluster(ctx, connect.NewRequest(bind))
	}
	_, paused := api.NewShardAdminClient(who.http, "https://"+s.addrs["shard"]).PauseActuation(ctx, connect.NewRequest(&pb.PauseActuationRequest{Reason: "kept", TtlSeconds: 3600}))
	provider := api.NewCapacityProviderClient(shard0.http, "https://"+s.addrs["provider"])
	list, listed := provider.List(ctx, connect.NewRequest(&pb.ListFilter{}))
	if err := errors.Join(err, paused, listed); err != nil {
		s.t.Fatal(err)
	}
	if _, err := provider.Create(ctx, connect.NewRequest(&pb.CreateRequest{MachineId: list.Msg.GetMachines()[0].GetId(), ShardId: "shard-0", ShardEpoch: 1 << 40, SequenceNumber: 1})); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(s.truth("provider"), "IDLE"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("no machine became idle")
		}
	}
}

// ended waits until a program answers or has ended, and tells the latter: a program may be alive for a moment before it reads its files and refuses them.
func (s *stage) ended(name string) bool {
	s.t.Helper()
	client, url := s.caller(admin).http, "https://"+s.addrs[name]
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		_, err := said(ctx, name, client, url)
		cancel()
		if err == nil {
			return false
		}
		select {
		case <-s.procs[name].Exited():
			return true
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

// truth is what a program says that it holds.
func (s *stage) truth(name string) string {
	s.t.Helper()
	who := s.caller(admin)
	url := "https://" + s.addrs[name]
	var out []string
	var err error
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		out, err = said(ctx, name, who.http, url)
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: %v", name, err)
		}
	}
	return strings.Join(out, "\n")
}

func said(ctx context.Context, name string, client *http.Client, url string) (out []string, err error) {
	switch name {
	case "coordinator":
		got, err := api.NewCoordinatorAdminClient(client, url).ListClusterBindings(ctx, connect.NewRequest(&pb.ListClusterBindingsRequest{}))
		if err != nil {
			return nil, err
		}
		for _, b := range got.Msg.GetBindings() {
			out = append(out, b.GetClusterId()+" to "+b.GetShardId())
		}
	case "shard":
		got, err := api.NewShardReadClient(client, url).GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		for _, p := range got.Msg.GetPauses() {
			out = append(out, "paused: "+p.GetReason())
		}
	case "provider":
		got, err := api.NewCapacityProviderClient(client, url).List(ctx, connect.NewRequest(&pb.ListFilter{}))
		if err != nil {
			return nil, err
		}
		for _, m := range got.Msg.GetMachines() {
			out = append(out, m.GetId()+" "+m.GetState().String())
		}
	}
	slices.Sort(out)
	return out, nil
}

// startDamaged starts a program on a damaged directory and returns what is wrong with what it did, or "".
func (s *stage) startDamaged(name, before string) string {
	s.t.Helper()
	p := s.procs[name]
	was := fileSize(s.t, p.LogFile())
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	err := p.Start(ctx)
	defer p.Kill()
	if err == nil && !s.ended(name) {
		if now := s.truth(name); now != before {
			return fmt.Sprintf("it started and says\n%s\nbefore it said\n%s", now, before)
		}
		return ""
	}
	text, readErr := os.ReadFile(p.LogFile())
	if readErr != nil {
		s.t.Fatal(readErr)
	}
	log := string(text[was:])
	switch {
	case ctx.Err() != nil:
		return "it neither started nor ended: " + proc.Tail(p.LogFile(), 5)
	case strings.Contains(log, "panic: "), strings.Contains(log, "goroutine "):
		return "a stack: " + log
	case !strings.Contains(log, filepath.Join(s.dir, name)):
		return "it ended without the name of a file: " + log
	case !remedy.MatchString(log):
		return "it ended without what to do: " + log
	}
	s.t.Logf("%s: %.400s", name, lastLine(log))
	return ""
}

// remedy is what each refusal says: from where the data comes again, or what to give up.
var remedy = regexp.MustCompile(`(?i)restore|move (it|them) away|remove it|empty data directory|--epoch-floor`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// filesOf are the paths of all files below a directory.
func filesOf(t *testing.T, dir string) (out []string) {
	t.Helper()
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// copyDir makes to a copy of from and nothing else.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}
