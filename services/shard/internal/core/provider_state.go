package core

import (
	"fmt"
	"slices"
)

// provider is what the core knows of one provider.
type provider struct {
	name string

	// Inventory.
	listed    bool  // one complete full List was merged in this process
	listedAt  int64 // when the last List ended well
	fullAt    int64
	cursor    []byte
	paged     bool // answers carry complete or more
	advanced  bool // its revision has been seen to change
	lastTook  int64
	read      int64 // the newest List that was merged to the end
	list      *list // running
	nextList  int64
	nextFull  int64
	fails     int // Lists in a row that failed
	lastError string
	errorAt   int64
	owed      map[string]bool // machines set aside, to be asked for
	asked     []want          // Gets wanted, in order
	wanted    map[string]getPurpose
	gets      int // Gets under way
	held      int // removals held by the guard
	needFull  bool
	waiters   []int64 // admin asks that wait for the next full List

	// Commands.
	inflight  int64
	max       int64
	allowed   int64
	unknowns  int // unknown outcomes in a row
	accepted  int // accepted since the last raise
	breaker   breaker
	fence     fence
	slowUntil int64 // concurrency 1 until then, after a reordering provider was found
	youngest  int64 // when a command was last accepted
	pollAt    int64 // next look at machines on their way
	machines  int

	// Outage (SHARD-14.15).
	outage      outage
	outageSince int64
	sweeping    bool              // some machines are not marked yet
	swept       string            // id of the last machine that was
	rejects     map[string]string // reason by id of records refused at the last look
}

func newProvider(name string, limit int64) *provider {
	return &provider{name: name, max: limit, allowed: limit, owed: map[string]bool{}, wanted: map[string]getPurpose{},
		rejects: map[string]string{}}
}

func (c *Core) provider(name string) *provider {
	i := slices.IndexFunc(c.providers, func(p *provider) bool { return p.name == name })
	return c.providers[max(i, 0)]
}

// limit is how many commands may be in flight now (SHARD-15.5).
func (p *provider) limit(now int64) int64 {
	if now < p.slowUntil {
		return 1
	}
	return p.allowed
}

// throttle halves the concurrency on resource_exhausted or three unknown outcomes in a row, and raises it by one per ten
// accepted.
func (p *provider) throttle(class Class, code Code) {
	switch {
	case code == CodeResourceExhausted:
		p.halve()
	case class == Unknown:
		if p.unknowns++; p.unknowns >= unknownThrottle {
			p.halve()
		}
	case class == Accepted:
		p.unknowns = 0
		if p.accepted++; p.accepted >= acceptedPerRaise && p.allowed < p.max {
			p.allowed++
			p.accepted = 0
		}
	default:
		p.unknowns = 0
	}
}

func (p *provider) halve() {
	p.allowed = max(1, p.allowed/2)
	p.unknowns, p.accepted = 0, 0
}

// noteAccepted arranges a fast look at the machines on their way (SHARD-13.3).
func (p *provider) noteAccepted(now int64) {
	p.youngest = now
	p.pollAt = 0
}

// mayCall tells what keeps a command from being sent to the provider now.
func (p *provider) mayCall(c *Core, pass *dispatchPass) blockedReason {
	if p.fence.Suspect {
		return blockedFence
	}
	if h := p.breaker.stops(c.now, pass); h != notBlocked {
		return h
	}
	if p.inflight >= p.limit(c.now) {
		return blockedProvider
	}
	return notBlocked
}

// breaker stops commands to a provider that does not answer. Lists and Gets go on (SHARD-14.12).
type breaker struct {
	Fails   int     `n:"1"` // within the window
	Window  []int64 `n:"2"` // when the last failures were
	Open    bool    `n:"3"`
	Trips   int     `n:"4"`
	Until   int64   `n:"5"`
	Probing bool    `n:"6"` // one call was let through
	Tripped int64   `n:"7"` // when it was last opened
}

func (b *breaker) stops(now int64, pass *dispatchPass) blockedReason {
	switch {
	case !b.Open:
		return notBlocked
	case b.Probing:
		return blockedBreaker
	case now < b.Until:
		pass.wake(b.Until)
		return blockedBreaker
	}
	return notBlocked // half open: one call may go
}

// state is what the gauge shows: 0 closed, 1 half-open, 2 open.
func (b *breaker) state(now int64) int {
	switch {
	case !b.Open:
		return 0
	case b.Probing || now >= b.Until:
		return 1
	}
	return 2
}

// sent notes a call that goes out while half open.
func (b *breaker) sent() {
	if b.Open {
		b.Probing = true
	}
}

// done takes the end of a call.
func (b *breaker) done(c *Core, p *provider, hurt bool) {
	b.Probing = false
	if !hurt {
		if b.Open {
			c.record(Record{Type: RecordBackoffChanged, Provider: p.name, Detail: "breaker closed"})
			c.cycle.redispatch = true
		}
		*b = breaker{}
		return
	}
	b.Window = append(b.Window, c.now)
	b.Window = slices.DeleteFunc(b.Window, func(at int64) bool { return c.now-at > breakerWindow })
	b.Fails = len(b.Window)
	if b.Open || b.Fails >= breakerFailures {
		b.Trips++
		b.Open, b.Tripped = true, c.now
		b.Until = c.now + jitter(rampBreaker.after(b.Trips), 20, p.name, b.Trips)
		b.Window = nil
		c.timers.add(b.Until, timerDispatch, "")
		c.record(Record{Type: RecordBackoffChanged, Provider: p.name,
			Detail: fmt.Sprintf("breaker open for %d s", (b.Until-c.now)/Second)})
	}
}
