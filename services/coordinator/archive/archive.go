package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
)

// Names in an archive, in their order.
const (
	MetaFile  = "meta.json"
	StateFile = "state"
	SumsFile  = "SHA256SUMS"
	// oldStateFile is how directories saved by an earlier CLI call the state.
	oldStateFile = "state.bin"
	// Format is the version of meta.json that this binary writes and the newest it reads.
	Format = 1
	// fileMax bounds one file of an archive, against a tar that says nonsense.
	fileMax = 4 << 30
)

// Meta is what meta.json says.
type Meta struct {
	Format        int               `json:"format"`
	CreatedAt     time.Time         `json:"created_at"`
	NodeID        string            `json:"node_id"`
	Build         string            `json:"build"`
	Index         uint64            `json:"index"`
	Term          uint64            `json:"term"`
	Configuration []Member          `json:"configuration"`
	ClusterUUID   string            `json:"cluster_uuid"`
	PreviousUUIDs []string          `json:"previous_uuids,omitempty"`
	FencingTerm   int64             `json:"fencing_term"`
	FeatureLevel  int32             `json:"feature_level"`
	StateHash     string            `json:"state_hash"`
	Counts        map[string]uint64 `json:"counts"`
}

// Member is one replica of the group that the archive was taken from.
type Member struct {
	NodeID   string `json:"node_id"`
	Address  string `json:"address"`
	Suffrage string `json:"suffrage"`
}

// Describe fills in what the state itself says, after decoding and checking it.
func Describe(m Meta, state []byte) (Meta, error) {
	s, err := fleet.ReadSnapshot(bytes.NewReader(state))
	if err != nil {
		return Meta{}, err
	}
	m.Format = Format
	m.ClusterUUID, m.PreviousUUIDs = s.Meta().GetClusterUuid(), s.Meta().GetPreviousUuids()
	m.FencingTerm, m.FeatureLevel = s.Meta().GetFencingTerm(), s.Meta().GetFeatureLevel()
	m.StateHash, m.Counts = s.Hash(), s.Counts()
	return m, nil
}

// JSON is meta.json.
func (m Meta) JSON() ([]byte, error) { return json.MarshalIndent(m, "", "  ") }

// Write writes an archive as a tar.
func Write(to io.Writer, meta, state []byte) error {
	out := tar.NewWriter(to)
	for _, f := range files(meta, state) {
		if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	return out.Close()
}

type file struct {
	name string
	data []byte
}

func files(meta, state []byte) []file {
	var sums bytes.Buffer
	for _, f := range []file{{MetaFile, meta}, {StateFile, state}} {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), f.name)
	}
	return []file{{MetaFile, meta}, {StateFile, state}, {SumsFile, sums.Bytes()}}
}

// Save writes an archive to a file: beside the target first, then renamed, so that the target is whole or absent. It
// refuses to replace a file unless the caller says so.
func Save(path string, meta, state []byte, replace bool) (err error) {
	if _, err := os.Lstat(path); err == nil && !replace {
		return fmt.Errorf("%s exists: choose another file, or overwrite it with force", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	if err := errors.Join(Write(tmp, meta, state), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// ReadMeta reads what a tar says about itself, and nothing else of it: its first entry. It verifies nothing.
func ReadMeta(path string) (Meta, error) {
	in, err := os.Open(path)
	if err != nil {
		return Meta{}, err
	}
	defer func() { _ = in.Close() }()
	tape := tar.NewReader(in)
	head, err := tape.Next()
	if err != nil || head.Name != MetaFile {
		return Meta{}, fmt.Errorf("%s is not an archive of a coordinator", path)
	}
	var m Meta
	if err := json.NewDecoder(io.LimitReader(tape, metaBytesMax)).Decode(&m); err != nil {
		return Meta{}, fmt.Errorf("%s: %s: %w", path, MetaFile, err)
	}
	return m, nil
}

// metaBytesMax bounds meta.json in ReadMeta; one of a large fleet has a few KB.
const metaBytesMax = 1 << 20

// Archive is one that was read and verified.
type Archive struct {
	Meta Meta
	// Warnings says what is not as it should be and does no harm.
	Warnings []string
	state    *fleet.State
	// Bytes is the size of the state.
	Bytes int64
}

// Hash is the hash of the state, as every replica at that index shows it.
func (a *Archive) Hash() string { return a.state.Hash() }

// Read reads an archive, a tar or a directory, and verifies it (COORD-15.6).
func Read(path string) (*Archive, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var found []file
	if info.IsDir() {
		found, err = readDir(path)
	} else {
		found, err = readTar(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a, err := verify(found)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func readDir(path string) ([]file, error) {
	var out []file
	for _, name := range []string{MetaFile, StateFile, oldStateFile, SumsFile} {
		data, err := os.ReadFile(filepath.Join(path, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if name == oldStateFile {
			name = StateFile
		}
		if !slices.ContainsFunc(out, func(f file) bool { return f.name == name }) {
			out = append(out, file{name, data})
		}
	}
	return out, nil
}

// readTar takes the entries in their order and no others: an archive that somebody put together by hand is not one.
func readTar(path string) ([]file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []file
	want := []string{MetaFile, StateFile, SumsFile}
	for in := tar.NewReader(f); ; {
		head, err := in.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the archive is damaged or cut short: %w", err)
		}
		if len(out) >= len(want) || head.Name != want[len(out)] || head.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("entry %q is unexpected: an archive holds %s, in this order", head.Name, strings.Join(want, ", "))
		}
		if head.Size > fileMax {
			return nil, fmt.Errorf("entry %q says it is %d bytes long", head.Name, head.Size)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("entry %q is cut short: %w", head.Name, err)
		}
		out = append(out, file{head.Name, data})
	}
}

func verify(found []file) (*Archive, error) {
	get := func(name string) []byte {
		for _, f := range found {
			if f.name == name {
				return f.data
			}
		}
		return nil
	}
	meta, state, sums := get(MetaFile), get(StateFile), get(SumsFile)
	if meta == nil || state == nil {
		return nil, fmt.Errorf("%s or %s is missing", MetaFile, StateFile)
	}
	a := &Archive{Bytes: int64(len(state))}
	if sums == nil {
		a.Warnings = append(a.Warnings, "the archive has no checksums")
	} else if want := files(meta, state)[2].data; !bytes.Equal(bytes.TrimSpace(sums), bytes.TrimSpace(want)) {
		return nil, fmt.Errorf("the checksums of %s do not match: the archive is damaged", SumsFile)
	}
	if err := json.Unmarshal(meta, &a.Meta); err != nil {
		return nil, fmt.Errorf("%s: %w", MetaFile, err)
	}
	if a.Meta.Format > Format {
		return nil, fmt.Errorf("the archive has format %d and this binary reads %d: use a newer version", a.Meta.Format, Format)
	}
	var err error
	if a.state, err = fleet.ReadSnapshot(bytes.NewReader(state)); err != nil {
		return nil, fmt.Errorf("%s: %w", StateFile, err)
	}
	switch {
	case a.Meta.Index == 0 || a.state.Index() == 0:
		return nil, errors.New("the archive was taken at index 0: it holds nothing to restore")
	case a.Meta.Index < a.state.Index():
		return nil, fmt.Errorf("%s names index %d and the state has index %d: they are from different snapshots", MetaFile, a.Meta.Index, a.state.Index())
	case a.Meta.StateHash != "" && a.Meta.StateHash != a.state.Hash():
		return nil, fmt.Errorf("%s and %s are from different snapshots: the hashes differ", MetaFile, StateFile)
	}
	return a, nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
