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

const (
	stableMagic = "BFSTAB02"
	// A slot is one sector of any disk, which is written whole or not at all.
	slotBytes  = 512
	slotsCount = 2
	// voteTermKey is the first of the two values that package raft stores for a vote, one right after the other.
	voteTermKey = "LastVoteTerm"
)

// errNotFound has the text that package raft compares with.
var errNotFound = errors.New("not found")

// Stable is a raft.StableStore: votes, the term and the identity of the group. Safe for concurrent use.
//
// An election waits for these writes, on the candidate and on each voter. So the file has two slots that are overwritten
// in turn: one write and one flush of data, no new file, no rename, no change of the directory. Both slots are valid at
// all times, the one with the higher number counts, and anything else is damage.
type Stable struct {
	path      string
	onFailure func(error)
	sync      func(*os.File) error

	mu     sync.Mutex
	file   *os.File
	number uint64 // of the newest slot
	values map[string][]byte
	failed error
}

// OpenStable opens the file, or begins one. A file that does not check out is an error.
func OpenStable(path string, onFailure func(error)) (*Stable, error) {
	if onFailure == nil {
		onFailure = func(error) {}
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createStable(path); err != nil {
			return nil, err
		}
	}
	s := &Stable{path: path, onFailure: onFailure, sync: datasync}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	damaged := len(data) != slotsCount*slotBytes
	for i := 0; !damaged && i < slotsCount; i++ {
		number, values, err := parseSlot(data[i*slotBytes : (i+1)*slotBytes])
		damaged = err != nil || number%slotsCount != uint64(i)
		if s.values == nil || number > s.number {
			s.number, s.values = number, values
		}
	}
	if damaged {
		return nil, fmt.Errorf("%s is damaged: its checksum does not match", path)
	}
	if s.file, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	return s, nil
}

// createStable makes a file of valid, empty slots, whole or not at all.
func createStable(path string) error {
	tmp := path + ".tmp"
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for number := range uint64(slotsCount) {
		_, failed := file.Write(encodeSlot(number, nil))
		err = errors.Join(err, failed)
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(tmp, path), syncDir(filepath.Dir(path)))
}

// encodeSlot is one slot, or something longer when the values do not fit.
func encodeSlot(number uint64, values map[string][]byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte(stableMagic), number)
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
		b = append(b, key...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(values[key])))
		b = append(b, values[key]...)
	}
	if n := slotBytes - 4 - len(b); n > 0 {
		b = append(b, make([]byte, n)...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseSlot(b []byte) (number uint64, values map[string][]byte, err error) {
	sum := len(b) - 4
	if string(b[:len(stableMagic)]) != stableMagic || crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return 0, nil, errDamaged
	}
	b = b[len(stableMagic):sum]
	number = binary.BigEndian.Uint64(b)
	n := binary.BigEndian.Uint32(b[8:])
	b = b[12:]
	take := func() ([]byte, error) {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, errDamaged
		}
		n := binary.BigEndian.Uint32(b)
		out := slices.Clone(b[4 : 4+n])
		b = b[4+n:]
		return out, nil
	}
	values = map[string][]byte{}
	for range n {
		key, err := take()
		if err != nil {
			return 0, nil, err
		}
		if values[string(key)], err = take(); err != nil {
			return 0, nil, err
		}
	}
	return number, values, nil
}

// write overwrites the older slot.
func (s *Stable) write(values map[string][]byte) error {
	slot := encodeSlot(s.number+1, values)
	if len(slot) > slotBytes {
		return fmt.Errorf("%d bytes of values do not fit", len(slot))
	}
	if _, err := s.file.WriteAt(slot, int64((s.number+1)%slotsCount)*slotBytes); err != nil {
		return err
	}
	if err := s.sync(s.file); err != nil {
		return err
	}
	s.number++
	return nil
}

// Close releases the file.
func (s *Stable) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	if s.failed == nil {
		s.failed = os.ErrClosed
	}
	return file.Close()
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
	if string(key) == voteTermKey {
		s.values = next // goes to the disk with the vote itself: a term without a vote says nothing
		return nil
	}
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
