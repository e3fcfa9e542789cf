package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

// COORD-4.7, 4.9: a command whose caller no longer waits when its turn comes is not proposed, and gives its slot back.
func TestLeftProposalIsNotProposed(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	n.batches.mu.Lock()
	n.batches.sending += batchesMax // as if two batches were under way
	n.batches.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := n.Propose(ctx, Envelope("test", addShard("left")), true)
		gone <- err
	}()
	eventually(t, "it waits for its batch", func() bool {
		n.batches.mu.Lock()
		defer n.batches.mu.Unlock()
		return len(n.batches.waiting) == 1
	})
	cancel()
	if err := <-gone; !errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	n.batches.mu.Lock()
	n.batches.sending -= batchesMax
	n.batches.mu.Unlock()
	r.commit(addShard("stayed"))
	if n.State().Shard("left") != nil {
		t.Error("an entry was proposed whose caller was answered that nothing is known of it, long before")
	}
	eventually(t, "all slots are free", func() bool { return len(n.slots) == 0 })
}

// COORD-4.6: each proposal of a batch gets its own outcome, and proposals under way together become few writes.
func TestBatchedProposals(t *testing.T) {
	r := three(t)
	n := r.leader()
	var all sync.WaitGroup
	errs := make([]error, OutstandingMax)
	for i := range errs {
		all.Go(func() {
			id := fmt.Sprintf("shard-%d", i)
			if i%2 == 1 {
				id = "not an id"
			}
			errs[i] = r.propose(n, addShard(id))
			for errors.Is(errs[i], ErrOutcomeUnknown) || errors.Is(errs[i], ErrNotLeader) { // a slow machine lost its leader
				errs[i] = r.propose(r.leader(), addShard(id))
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		if refused := err != nil; refused != (i%2 == 1) {
			t.Errorf("proposal %d: %v", i, err)
		}
		if id := fmt.Sprintf("shard-%d", i); i%2 == 0 && r.leader().State().Shard(id) == nil {
			t.Errorf("%s is not there", id)
		}
	}
	r.agree()
}

// COORD-17.5: a replica that is closed under a load of proposals and snapshots answers all of them, and ends.
func TestCloseUnderLoad(t *testing.T) {
	r := newReplicas(t)
	r.bootstrap("node-0")
	for range 5 {
		n := r.leader()
		var all sync.WaitGroup
		begun := make(chan struct{}, 64)
		for i := range 64 {
			all.Go(func() {
				for first := true; ; first = false {
					var err error
					if i%8 == 0 {
						err = n.barrier(t.Context())
					} else {
						_, err = n.Propose(t.Context(), Envelope("test", addShard("shard-0")), true)
					}
					if first {
						begun <- struct{}{}
					}
					if err != nil {
						return
					}
				}
			})
		}
		for range 64 {
			<-begun
		}
		r.stop("node-0")
		all.Wait()
		r.start("node-0", nil)
	}
}

// COORD-5.5: a replica does not wait for Raft's own time to take a snapshot when its next start would have much to apply.
func TestReplayIsBounded(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	data, err := proto.Marshal(Envelope("test", addShard("shard-0")))
	if err != nil {
		t.Fatal(err)
	}
	before := n.snapshotIndex()
	for range replayMax {
		n.raft.Apply(data, 0)
	}
	r.commit(addShard("shard-1"))
	eventually(t, "a snapshot", func() bool { return n.snapshotIndex() >= before+replayMax })
}

// COORD-5.10: what is too large to be read again is not committed. The caller hears both sizes, nothing of it is done, its slot is free, and
// the next entry is committed.
func TestTooLargeEntryIsRefused(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	before := n.State().Index()
	_, err := n.Propose(t.Context(), Envelope(strings.Repeat("x", ProposalBytesMax), addShard("large")), true)
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("at most %d", ProposalBytesMax)) {
		t.Fatalf("got %v", err)
	}
	if n.State().Shard("large") != nil || len(n.slots) != 0 {
		t.Errorf("of the refused entry: shard %v, %d slots", n.State().Shard("large"), len(n.slots))
	}
	r.commit(addShard("next"))
	if now := n.State(); now.Index() <= before || now.Shard("next") == nil {
		t.Errorf("the next entry: index %d after %d, %v", now.Index(), before, now.Shard("next"))
	}
}
