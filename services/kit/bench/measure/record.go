package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// fileBytesMax bounds a results file, so that the repository stays small.
const fileBytesMax = 200 << 10

// Recorder appends Results to <dir>/<date>-<commit12>-<machine>.jsonl. Safe for concurrent use in one process.
type Recorder struct {
	mu      sync.Mutex
	dir     string
	commit  string
	machine Machine
}

// ErrDirty means that the tree differs from its commit, so a number would belong to no commit.
var ErrDirty = errors.New("the tree differs from its commit: numbers are not recorded")

// NewRecorder records for the git tree that holds the working directory. It fails with ErrDirty when tracked files
// have changes or untracked ones exist, results aside.
func NewRecorder(dir string) (*Recorder, error) {
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	status, err := git("-C", root, "status", "--porcelain", "--", ".", ":(exclude)docs/benchmarks/results")
	if err != nil {
		return nil, err
	}
	if status != "" {
		return nil, ErrDirty
	}
	return &Recorder{dir: dir, commit: commit, machine: ThisMachine()}, nil
}

// RecorderFromEnv returns a Recorder for the directory in BIGFLEET_BENCH_RESULTS; or one for BIGFLEET_BENCH_SCRATCH,
// whose lines are for a gate and not for the record, so that they name no commit and the tree may differ from it; or nil
// when neither is set.
func RecorderFromEnv() (*Recorder, error) {
	if dir := os.Getenv("BIGFLEET_BENCH_RESULTS"); dir != "" {
		return NewRecorder(dir)
	}
	if dir := os.Getenv("BIGFLEET_BENCH_SCRATCH"); dir != "" {
		return &Recorder{dir: dir, commit: "scratch", machine: ThisMachine()}, nil
	}
	return nil, nil
}

// Record appends one line, after it has filled in commit and machine.
func (r *Recorder) Record(result Result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Commit, result.Machine = r.commit, r.machine
	result.judge()
	if result.Dropped == nil {
		result.Dropped = []string{}
	}
	if result.Time.IsZero() {
		result.Time = time.Now().UTC().Truncate(time.Second)
	}
	line, err := json.Marshal(result)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, fmt.Sprintf("%s-%.12s-%s.jsonl", result.Time.Format(time.DateOnly), r.commit, r.machine.Name))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size()+int64(len(line)) > fileBytesMax {
		err = fmt.Errorf("%s would exceed %d bytes", path, fileBytesMax)
	}
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	return errors.Join(err, file.Close())
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
