package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// State is what the agent must know after it was killed.
type State struct {
	Phase     pb.HostPhase `json:"phase"`
	Operation string       `json:"operation,omitempty"` // the last task that was taken
	Kind      string       `json:"kind,omitempty"`      // configure or reset
	Machine   string       `json:"machine,omitempty"`
	Cluster   string       `json:"cluster,omitempty"`
	Step      string       `json:"step,omitempty"` // that runs, or failed
	Grace     int64        `json:"grace_seconds,omitempty"`
	Problem   string       `json:"problem,omitempty"`
	Remains   []string     `json:"remains,omitempty"`
	Kubelet   []string     `json:"kubelet,omitempty"` // flags of the kubelet; they hold no secret
}

// journal is one file that is replaced as a whole: the state, and behind a line end its checksum. Journals of earlier agents have none.
type journal struct{ file string }

func checksum(text []byte) string {
	return fmt.Sprintf("crc32c:%08x\n", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
}

func (j journal) load() (State, error) {
	text, err := os.ReadFile(j.file)
	if errors.Is(err, os.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var s State
	text, sum, sealed := bytes.Cut(text, []byte("\n"))
	if sealed && string(sum) != checksum(text) {
		return State{}, fmt.Errorf("the journal %s is damaged (its checksum differs): reset the host with the command reset, which writes a new one", j.file)
	}
	if err := json.Unmarshal(text, &s); err != nil || pb.HostPhase_name[int32(s.Phase)] == "" || s.Phase == 0 {
		return State{}, fmt.Errorf("the journal %s is damaged (%v): reset the host with the command reset, which writes a new one", j.file, err)
	}
	return s, nil
}

// save returns when the state is on disk.
func (j journal) save(s State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text = append(append(text, '\n'), checksum(text)...)
	next := j.file + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close(), os.Rename(next, j.file)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(j.file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
