package hosts

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
)

// keptFiles are the files that the programs of this provider keep, and which program reads each. The test fails for one that is not listed.
var keptFiles = []struct{ name, program, why string }{
	{`provider\.db`, "provider", ""}, {`provider\.db\.log[01]`, "provider", ""},
	{`journal\.json`, "agent", ""},
	{`(provider|agent|shard)\.log|inventory\.yaml|config\.yaml`, "", "the test's own"},
	{`facts\.json|process-.*`, "", "the pretended host itself"},
}

// refusal is what a program says that refuses damaged data: what to do.
var refusal = regexp.MustCompile(`(?i)restore|move (it|them) away|remove it|empty data directory|command reset`)

// PROV-12.8, PROV-32: every kind of file that provider and agents of a configured host keep is listed, and a flipped bit in it is repaired, or refused at the start with
// the file and the remedy. It never changes what the provider says, and never ends in a stack. The tests of the stores flip every bit.
func TestFlippedBitsOfEveryKindOfFile(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWarden(t)
	w.reach(pb.MachineState_MACHINE_STATE_IDLE)
	w.reach(pb.MachineState_MACHINE_STATE_CONFIGURED)
	before := w.truth()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range roles {
		w.end(name) // a clean stop would tidy up
	}
	intact, seen := filepath.Join(t.TempDir(), "intact"), map[int]bool{}
	if err := os.CopyFS(intact, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	_ = fs.WalkDir(os.DirFS(intact), ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind := slices.IndexFunc(keptFiles, func(k struct{ name, program, why string }) bool {
			return regexp.MustCompile("^(" + k.name + ")$").MatchString(file)
		})
		if kind < 0 {
			t.Errorf("%s is kept: list it, and say what a flipped bit in it means", file)
			return nil
		}
		seen[kind] = true
		data, err := os.ReadFile(filepath.Join(intact, file))
		if err != nil {
			t.Fatal(err)
		}
		for flips := 0; flips < 4 && len(data) > 0 && keptFiles[kind].program != ""; flips++ {
			bit := random.IntN(8 * len(data))
			if said := w.startDamaged(keptFiles[kind].program, file, data, bit, intact, before); said != "" {
				t.Errorf("seed %d: bit %d of %d of %s flipped: %s", seed, bit, 8*len(data), file, said)
			}
		}
		return nil
	})
	for i, k := range keptFiles {
		if k.program != "" && !seen[i] {
			t.Errorf("no %s is kept: this test does not make it", k.name)
		}
	}
}

// truth is what the provider says that it holds.
func (w *warden) truth() string {
	w.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if said, err := w.said(); err == nil || time.Now().After(end) {
			return said
		}
	}
}

func (w *warden) said() (string, error) {
	list, err := w.client.List(w.Context(), connect.NewRequest(&pb.ListFilter{}))
	if err != nil {
		return err.Error(), err
	}
	var out []string
	for _, m := range list.Msg.GetMachines() {
		out = append(out, fmt.Sprint(m.GetId(), " ", m.GetState(), " ", m.GetCluster(), " ", m.GetShardMetadata()))
	}
	slices.Sort(out)
	return strings.Join(out, "\n"), nil
}

// startDamaged starts a program on files of which one has a flipped bit, and returns what is wrong with what it did, or "". The lock is held.
func (w *warden) startDamaged(program, file string, data []byte, bit int, intact, before string) string {
	w.Helper()
	for _, k := range []string{"provider.db", "provider.db.log0", "provider.db.log1", "journal.json"} {
		_ = os.Remove(filepath.Join(w.dir, k))
		if text, err := os.ReadFile(filepath.Join(intact, k)); err == nil {
			if err := os.WriteFile(filepath.Join(w.dir, k), text, 0o600); err != nil {
				w.Fatal(err)
			}
		}
	}
	damaged := slices.Clone(data)
	damaged[bit/8] ^= 1 << (bit % 8)
	if err := os.WriteFile(filepath.Join(w.dir, file), damaged, 0o600); err != nil {
		w.Fatal(err)
	}
	log := filepath.Join(w.dir, program+".log")
	was, err := os.ReadFile(log)
	if err != nil {
		w.Fatal(err)
	}
	w.begin(program)
	cmd := w.programs[program]
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
		delete(w.programs, program)
	}()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if program == "provider" {
			if said, err := w.said(); err == nil {
				if said != before {
					return fmt.Sprintf("it started and says\n%s\nbefore it said\n%s", said, before)
				}
				return ""
			}
		}
		select {
		case <-ended:
			text, err := os.ReadFile(log)
			if err != nil {
				w.Fatal(err)
			}
			switch said := string(text[len(was):]); {
			case strings.Contains(said, "panic: "), strings.Contains(said, "goroutine "):
				return "a stack: " + said
			case !strings.Contains(said, w.dir):
				return "it ended without the name of a file: " + said
			case !refusal.MatchString(said):
				return "it ended without what to do: " + said
			default:
				w.Logf("%s: %.300s", file, said)
			}
			return ""
		case <-time.After(20 * time.Millisecond):
		}
	}
	return "it neither answered nor ended"
}
