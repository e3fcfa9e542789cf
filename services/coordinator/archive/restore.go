package archive

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/store"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// FenceStride is how far a restore raises the fencing term, unless the caller says otherwise (COORD-2).
const FenceStride = 1_000_000

// Restoration says where a state goes.
type Restoration struct {
	DataDir       string // required
	NodeID        string // required: the id that the first replica will start with
	RaftAdvertise string // required: stable name and port of its Raft transport
	// FenceStride is added to the fencing term; 0 means the constant. FenceAtLeast is the least that it becomes.
	FenceStride, FenceAtLeast int64
	Reason                    string // for the audit ring
}

// Restored says what a restore did.
type Restored struct {
	ClusterUUID, PreviousUUID string
	FencingTerm               int64
	Index                     uint64
	// KeptDir holds the stores that were there before; empty when there were none.
	KeptDir string
}

// Restore makes a data directory hold the state of an archive, as a group of one voter with a new identity, its old one
// remembered, and a fencing term above every one that shards may have seen (COORD-15.7 to 15.9). Other replicas must
// start with empty directories and join. A crash at any point leaves the old or the new stores whole.
func Restore(a *Archive, r Restoration) (Restored, error) {
	switch {
	case r.DataDir == "" || r.NodeID == "" || r.RaftAdvertise == "":
		return Restored{}, errors.New("a restore needs a data directory, a node id and the stable Raft name of that node")
	case r.FenceStride < 0 || r.FenceAtLeast < 0:
		return Restored{}, errors.New("the fencing term must not decrease")
	}
	if r.FenceStride == 0 {
		r.FenceStride = FenceStride
	}
	lock, err := store.Lock(r.DataDir)
	if err != nil {
		return Restored{}, err
	}
	defer func() { _ = lock.Close() }()
	now := time.Now()
	uuid := newUUID()
	peer := &pb.Peer{NodeId: r.NodeID, RaftAddress: r.RaftAdvertise, FeatureLevelMax: fleet.Level}
	next := fleet.RestoreFrom(a.state, uuid, r.NodeID, peer, r.FenceStride, r.FenceAtLeast, now.UnixNano())
	next = fleet.Noted(next, now.UnixNano(), "snapshot-restore", r.Reason)
	if err := next.Check(); err != nil {
		return Restored{}, fmt.Errorf("the restored state is inconsistent: %w", err)
	}
	kept, err := store.Restore(r.DataDir, store.Restored{
		Index: a.Meta.Index, Term: a.Meta.Term, ClusterUUID: uuid, At: now,
		Configuration: raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(r.NodeID), Address: raft.ServerAddress(r.RaftAdvertise)}}},
		State:         func(w io.Writer) error { return next.WriteSnapshot(w) },
	}, hclog.NewNullLogger())
	if err != nil {
		return Restored{}, err
	}
	return Restored{ClusterUUID: uuid, PreviousUUID: a.Meta.ClusterUUID, FencingTerm: next.Meta().GetFencingTerm(), Index: a.Meta.Index, KeptDir: kept}, nil
}

// newUUID makes a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
