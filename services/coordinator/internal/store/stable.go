package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const stableMagic = "BFSTAB01"

// errNotFound has the text that package raft compares with.
var errNotFound = errors.New("not found")

// Stable is a raft.StableStore: votes, the term and the identity of the group. Safe for concurrent use.
type Stable struct {
	path      string
	onFailure func(error)
	sync      func(*os.File) error

	mu     sync.Mutex
	values map[string][]byte
	failed error
}

// OpenStable reads the file, or begins one. A file that does not check out is an error.
func OpenStable(path string, onFailure func(error)) (*Stable, error) {
	if onFailure == nil {
		onFailure = func(error) {}
	}
	s := &Stable{path: path, onFailure: onFailure, sync: (*os.File).Sync, values: map[string][]byte{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, s.write(s.values)
	}
	if err != nil {
		return nil, err
	}
	if s.values, err = parseStable(data); err != nil {
		return nil, fmt.Errorf("%s is damaged: it does not check out", path)
	}
	return s, nil
}

func encodeStable(values map[string][]byte) []byte {
	b := []byte(stableMagic)
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
		b = append(b, key...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(values[key])))
		b = append(b, values[key]...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseStable(b []byte) (map[string][]byte, error) {
	if len(b) < len(stableMagic)+8 || string(b[:len(stableMagic)]) != stableMagic ||
		crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errDamaged
	}
	b = b[len(stableMagic) : len(b)-4]
	n := binary.BigEndian.Uint32(b)
	b = b[4:]
	take := func() ([]byte, error) {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, errDamaged
		}
		n := binary.BigEndian.Uint32(b)
		out := slices.Clone(b[4 : 4+n])
		b = b[4+n:]
		return out, nil
	}
	out := map[string][]byte{}
	for range n {
		key, err := take()
		if err != nil {
			return nil, err
		}
		if out[string(key)], err = take(); err != nil {
			return nil, err
		}
	}
	if len(b) != 0 {
		return nil, errDamaged
	}
	return out, nil
}

// write replaces the file: a new one, synced, renamed over the old one, the directory synced.
func (s *Stable) write(values map[string][]byte) error {
	tmp := s.path + ".tmp"
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(encodeStable(values))
	if err = errors.Join(err, s.sync(file), file.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(tmp, s.path), syncDir(filepath.Dir(s.path)))
}

// Set implements raft.StableStore.
func (s *Stable) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	next := maps.Clone(s.values)
	next[string(key)] = slices.Clone(value)
	if err := s.write(next); err != nil {
		s.failed = fmt.Errorf("%s cannot be written: %w", s.path, err)
		s.onFailure(s.failed)
		return s.failed
	}
	s.values = next
	return nil
}

// Get implements raft.StableStore.
func (s *Stable) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return slices.Clone(value), nil
}

// SetUint64 implements raft.StableStore.
func (s *Stable) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *Stable) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("key %q in %s holds no number", key, s.path)
	}
	return binary.BigEndian.Uint64(value), nil
}
