package replica

import (
	"sync"
	"time"
)

// stallDetector notices that this process stood still: stopped by a signal, frozen with its machine, or without a processor. Raft's
// confirmation of leadership accepts any answer of a follower. After a standstill that answer may have waited in a socket while
// another leader was elected. Without a standstill this cannot happen: a leader without answers for a lease steps down, and
// followers elect no leader within a lease of their last answer.
type stallDetector struct {
	lease time.Duration
	mu    sync.Mutex
	last  time.Time // newest beat
	stood time.Time // when a gap was last found
}

const (
	// stallBeats is how often in a lease it beats; half a lease without a beat is a standstill.
	stallBeats = 8
	// stallDoubt is how many leases after a standstill old answers may still come in.
	stallDoubt = 20
)

// beat notes that the process runs, at a time.
func (p *stallDetector) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gap(now) > p.lease/2 {
		p.stood = now
	}
	p.last = now
}

// doubtful tells whether the process stands still, or did a short time ago.
func (p *stallDetector) doubtful(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gap(now) > p.lease/2 || !p.stood.IsZero() && now.Sub(p.stood) < stallDoubt*p.lease
}

// gap is the time since the last beat by whichever clock saw more of it: the monotonic one does not run while a machine sleeps.
func (p *stallDetector) gap(now time.Time) time.Duration {
	if p.last.IsZero() {
		return 0
	}
	return max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0)))
}

func (n *Node) watchStalls() {
	tick := time.NewTicker(n.config.Lease / stallBeats)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			n.stalls.beat(time.Now())
		}
	}
}
