package replica

import (
	"sync"
	"time"
)

// pulse notices that this process stood still: stopped by a signal, frozen with its machine, or without a processor. Raft's
// confirmation of leadership takes any answer of a follower for an answer to its question, also one that waited in a socket while
// the process stood still and somebody else was elected. Where no time is lost that cannot be: a leader without answers for a
// lease steps down, and followers elect nobody within a lease of their last answer.
type pulse struct {
	lease time.Duration
	mu    sync.Mutex
	last  time.Time // newest beat
	stood time.Time // when a gap was last found
}

const (
	// pulseBeats is how often in a lease the pulse beats; half a lease without a beat is a standstill.
	pulseBeats = 8
	// pulseDoubt is how many leases after a standstill old answers may still come in.
	pulseDoubt = 20
)

// beat notes that the process runs, at a time.
func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gap(now) > p.lease/2 {
		p.stood = now
	}
	p.last = now
}

// doubtful tells whether the process stands still, or did a short time ago.
func (p *pulse) doubtful(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gap(now) > p.lease/2 || !p.stood.IsZero() && now.Sub(p.stood) < pulseDoubt*p.lease
}

// gap is the time since the last beat by whichever clock saw more of it: the monotonic one does not run while a machine sleeps.
func (p *pulse) gap(now time.Time) time.Duration {
	if p.last.IsZero() {
		return 0
	}
	return max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0)))
}

func (n *Node) watchPulse() {
	tick := time.NewTicker(n.config.Lease / pulseBeats)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			n.pulse.beat(time.Now())
		}
	}
}
