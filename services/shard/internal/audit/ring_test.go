package audit

import (
	"sync"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-23.1: readers of the ring get each record once and in order, or hear how many they missed, while it is written.
func TestRingUnderReaders(t *testing.T) {
	const last = 200_000
	r := newRing(64)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			at, seen, missed := int64(1), int64(0), int64(0)
			for at <= last {
				list, next, skipped := r.from(at, 16)
				missed += skipped
				for i, x := range list {
					if want := at + skipped + int64(i); x.Sequence != want {
						t.Errorf("record %d, want %d", x.Sequence, want)
						return
					}
				}
				seen += int64(len(list))
				at = next
			}
			if seen+missed != last {
				t.Errorf("%d seen and %d missed of %d", seen, missed, last)
			}
		})
	}
	for i := int64(1); i <= last; i++ {
		r.add(&pb.DecisionRecord{Sequence: i})
	}
	readers.Wait()
	if list, next, skipped := r.from(1, 1000); len(list) != 64 || next != last+1 || skipped != last-64 {
		t.Errorf("%d records, next %d, skipped %d", len(list), next, skipped)
	}
	if list, next, skipped := r.from(last+500, 1000); len(list) != 0 || next != last+500 || skipped != 0 {
		t.Errorf("ahead of the ring: %d records, next %d, skipped %d", len(list), next, skipped)
	}
}
