package replica

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// replayMax is how many entries a replica may have to apply when it starts. Raft itself takes a snapshot at times of
	// its own, the first one half a minute or more after the start: replicas that are restarted before that would apply a
	// longer log each time, and a replica that applies its log takes the processor from the others and no leadership.
	replayMax = 4 * snapshotThreshold
	// replayCheck is how often it is looked at, and replayPause how long a busy group is left alone after a snapshot.
	replayCheck = time.Second
	replayPause = 10 * time.Second
)

// watchReplay takes a snapshot when a start of this replica would have too much to apply.
func (n *Node) watchReplay() {
	tick := time.NewTicker(replayCheck)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(last) < replayPause || n.State().Index() < n.snapshotIndex()+replayMax {
			continue
		}
		last = time.Now()
		err := n.raft.Snapshot().Error()
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			n.config.Log.Warn("no snapshot could be taken; the next start will take longer", "err", err)
		}
	}
}

// snapshotIndex is the last entry of the newest snapshot.
func (n *Node) snapshotIndex() uint64 {
	if newest := n.NewestSnapshot(); newest != nil {
		return newest.Index
	}
	return 0
}
