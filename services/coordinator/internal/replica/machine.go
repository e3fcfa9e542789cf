package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// errHalted is what a machine answers after an entry it does not understand.
var errHalted = errors.New("this replica stopped at a log entry it does not understand")

// machine is the raft.FSM: it holds the newest state and replaces it by Apply's answer.
type machine struct {
	config *Config
	state  atomic.Pointer[fleet.State]
	halted atomic.Bool

	configured atomic.Uint64           // index of the newest committed configuration in the log
	learn      func(uuid string) error // stores the identity of the group before anything else happens

	mu   sync.Mutex
	last uuidSeen
}

type uuidSeen struct{ uuid string }

// applied is the answer to the proposer of an entry.
type applied struct {
	state   *fleet.State
	outcome *fleet.Outcome
	err     error
}

// Apply implements raft.FSM. After an entry that it does not understand it changes nothing any more, and the replica
// stops (COORD-4.4).
func (m *machine) Apply(l *raft.Log) any {
	if m.halted.Load() {
		return applied{err: errHalted}
	}
	e := &pb.Envelope{}
	if err := proto.Unmarshal(l.Data, e); err != nil {
		return m.halt(fmt.Errorf("log entry %d is not an envelope: %w", l.Index, err))
	}
	if e.GetLevel() > m.config.Level {
		return m.halt(fmt.Errorf("log entry %d needs feature level %d and this replica has %d: start a newer version of the coordinator", l.Index, e.GetLevel(), m.config.Level))
	}
	next, outcome, err := fleet.Apply(m.state.Load(), l.Index, e)
	if err != nil {
		return m.halt(err)
	}
	if err := m.adopt(next); err != nil {
		return applied{err: err}
	}
	m.config.OnApply(next, outcome.Changes)
	return applied{state: next, outcome: outcome}
}

func (m *machine) halt(err error) applied {
	m.halted.Store(true)
	m.config.Log.Error("the replica stops: it does not understand the log", "err", err)
	m.config.OnFatal(err)
	return applied{err: errHalted}
}

// adopt makes a state the newest one. A new identity of the group is on disk before anyone sees it.
func (m *machine) adopt(s *fleet.State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if uuid := s.Meta().GetClusterUuid(); uuid != "" && uuid != m.last.uuid {
		if err := m.learn(uuid); err != nil {
			m.halted.Store(true)
			m.config.OnFatal(err)
			return err
		}
		m.last.uuid = uuid
	}
	if level := s.Meta().GetFeatureLevel(); level > m.config.Level {
		err := fmt.Errorf("the group has feature level %d and this replica supports %d: start the version that supports it", level, m.config.Level)
		m.halted.Store(true)
		m.config.OnFatal(err)
		return err
	}
	m.state.Store(s)
	return nil
}

// StoreConfiguration implements raft.ConfigurationStore, so that a membership change moves the index of the machine
// and a snapshot can be taken behind it (COORD-5.7).
func (m *machine) StoreConfiguration(index uint64, _ raft.Configuration) { m.configured.Store(index) }

// Snapshot implements raft.FSM: a pointer, since states never change (COORD-5.5).
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.halted.Load() {
		return nil, errHalted
	}
	return &persist{state: m.state.Load(), config: m.config}, nil
}

// Restore implements raft.FSM: the new state is read and checked whole before it is seen (COORD-5.6).
func (m *machine) Restore(from io.ReadCloser) error {
	s, err := fleet.ReadSnapshot(from)
	if err != nil {
		return err
	}
	if err := m.adopt(s); err != nil {
		return err
	}
	m.config.OnReset(s)
	return nil
}

type persist struct {
	state  *fleet.State
	config *Config
}

// Persist implements raft.FSMSnapshot.
func (p *persist) Persist(sink raft.SnapshotSink) error {
	start := time.Now()
	if err := p.state.WriteSnapshot(sink); err != nil {
		p.config.Log.Error("a snapshot could not be written", slog.String("err", err.Error()))
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	p.config.Metrics.SnapshotSeconds.Observe(time.Since(start).Seconds())
	return nil
}

// Release implements raft.FSMSnapshot.
func (p *persist) Release() {}
