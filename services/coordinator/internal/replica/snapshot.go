package replica

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
)

// ErrNoSnapshot means that there is nothing to save yet.
var ErrNoSnapshot = errors.New("there is no snapshot yet")

func checkState(r io.Reader) (uint64, error) {
	s, err := fleet.ReadSnapshot(r)
	if err != nil {
		return 0, err
	}
	return s.Index(), nil
}

// Snapshot takes a snapshot of everything committed before the call, or opens the newest one if nothing came since
// (COORD-5.7, 5.8). The caller closes the reader.
func (n *Node) Snapshot(ctx context.Context) (*raft.SnapshotMeta, io.ReadCloser, error) {
	// Without the Barrier the machine's index may trail a membership change, and Raft refuses to take the snapshot.
	if err := n.barrier(ctx); err != nil {
		return nil, nil, err
	}
	if newest := n.NewestSnapshot(); newest != nil && newest.Index >= n.State().Index() && newest.ConfigurationIndex >= n.machine.configured.Load() {
		return n.dir.Snapshots.Open(newest.ID)
	}
	future := n.raft.Snapshot()
	err := future.Error()
	if err == nil {
		return future.Open()
	}
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		if newest := n.NewestSnapshot(); newest != nil {
			return n.dir.Snapshots.Open(newest.ID)
		}
		return nil, nil, ErrNoSnapshot
	}
	return nil, nil, fmt.Errorf("taking a snapshot: %w", err)
}

func (n *Node) barrier(ctx context.Context) error {
	done := make(chan error, 1)
	started := n.group.Go(func() {
		if !n.inFlight.enter() {
			done <- ErrNotLeader
			return
		}
		defer n.inFlight.leave()
		done <- n.raft.Barrier(ApplyTimeout).Error()
	})
	if !started {
		return ErrNotLeader
	}
	select {
	case err := <-done:
		if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
			return ErrNotLeader
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewestSnapshot describes the newest snapshot on disk, or is nil.
func (n *Node) NewestSnapshot() *raft.SnapshotMeta {
	list, err := n.dir.Snapshots.List()
	if err != nil || len(list) == 0 {
		return nil
	}
	return list[0]
}
