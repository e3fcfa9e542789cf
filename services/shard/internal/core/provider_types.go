package core

import (
	"fmt"
	"slices"
)

// provider is what the core knows of one provider.
type provider struct {
	keptProvider

	list     *list           // running
	owed     map[string]bool // machines set aside, to be asked for
	asked    []want          // Gets wanted, in order
	wanted   map[string]getPurpose
	max      int64
	machines int
	sweeping bool              // some machines are not marked yet
	swept    string            // id of the last machine that was
	rejects  map[string]string // reason by id of records refused at the last look
}

// keptProvider is what a checkpoint keeps of a provider as it is.
type keptProvider struct {
	Name string `n:"1"`

	// Inventory.
	Listed    bool    `n:"2"`  // one complete full List was merged in this process
	FirstAt   int64   `n:"35"` // when that List ended
	ListedAt  int64   `n:"3"`  // when the last List ended well
	FullAt    int64   `n:"4"`
	Cursor    []byte  `n:"5"`
	Paged     bool    `n:"6"` // answers carry complete or more
	Advanced  bool    `n:"7"` // its revision has been seen to change
	LastTook  int64   `n:"8"`
	Read      int64   `n:"32"` // the newest List that was merged to the end
	NextList  int64   `n:"10"`
	NextFull  int64   `n:"11"`
	Fails     int     `n:"12"` // Lists in a row that failed
	LastError string  `n:"13"`
	ErrorAt   int64   `n:"14"`
	Gets      int     `n:"17"` // Gets under way
	Held      int     `n:"18"` // removals held by the guard
	NeedFull  bool    `n:"19"`
	Waiters   []int64 `n:"20"` // admin asks that wait for the next full List

	// Commands.
	Inflight  int64   `n:"21"`
	Allowed   int64   `n:"22"`
	Unknowns  int     `n:"23"` // unknown outcomes in a row
	Accepted  int     `n:"24"` // accepted since the last raise
	Breaker   breaker `n:"25"`
	Fence     fence   `n:"26"`
	SlowUntil int64   `n:"27"` // concurrency 1 until then, after a reordering provider was found
	Youngest  int64   `n:"28"` // when a command was last accepted
	PollAt    int64   `n:"29"` // next look at machines on their way

	// Outage (SHARD-14.15).
	Outage   outage `n:"33"`
	OutageAt int64  `n:"34"`
}

func newProvider(name string, limit int64) *provider {
	return &provider{keptProvider: keptProvider{Name: name, Allowed: limit}, max: limit, owed: map[string]bool{}, wanted: map[string]getPurpose{},
		rejects: map[string]string{}}
}

// limit is how many commands may be in flight now (SHARD-15.5).
func (p *provider) limit(now int64) int64 {
	if now < p.SlowUntil {
		return 1
	}
	return p.Allowed
}

// throttle halves the concurrency on resource_exhausted or three unknown outcomes in a row, and raises it by one per ten
// accepted.
func (p *provider) throttle(class Class, code Code) {
	switch {
	case code == CodeResourceExhausted:
		p.halve()
	case class == Unknown:
		if p.Unknowns++; p.Unknowns >= unknownThrottle {
			p.halve()
		}
	case class == Accepted:
		p.Unknowns = 0
		if p.Accepted++; p.Accepted >= acceptedPerRaise && p.Allowed < p.max {
			p.Allowed++
			p.Accepted = 0
		}
	default:
		p.Unknowns = 0
	}
}

func (p *provider) halve() {
	p.Allowed = max(1, p.Allowed/2)
	p.Unknowns, p.Accepted = 0, 0
}

// noteAccepted arranges a fast look at the machines on their way (SHARD-13.3).
func (p *provider) noteAccepted(now int64) {
	p.Youngest = now
	p.PollAt = 0
}

// mayCall tells what keeps a command from being sent to the provider now.
func (p *provider) mayCall(c *shared, pass *dispatchPass) blockedReason {
	if p.Fence.Suspect {
		return blockedFence
	}
	if h := p.Breaker.stops(c.now, pass); h != notBlocked {
		return h
	}
	if p.Inflight >= p.limit(c.now) {
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
func (b *breaker) done(c *shared, p *provider, hurt bool) {
	probed := b.Probing
	b.Probing = false
	if hurt && b.Open && !probed {
		return // it was sent before the breaker opened
	}
	if !hurt {
		if b.Open {
			c.record(Record{Type: RecordBackoffChanged, Provider: p.Name, Detail: "Its breaker is closed again: the provider answers."})
			c.cycle.Redispatch = true
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
		b.Until = c.now + jitter(rampBreaker.after(b.Trips), 20, p.Name, b.Trips)
		b.Window = nil
		c.timers.add(b.Until, timerDispatch, "")
		c.record(Record{Type: RecordBackoffChanged, Provider: p.Name,
			Detail: fmt.Sprintf("Its breaker is open: no command is sent to it for %d s.", (b.Until-c.now)/Second)})
	}
}

// answered takes a List that ended well. The first one after a silence ends the pause, and the next command decides. When nothing was asked of the provider for
// long enough since, the breaker says nothing of it any more.
func (b *breaker) answered(c *shared, p *provider, silent bool) {
	switch {
	case !b.Open || b.Probing:
	case silent:
		b.Until = c.now
		c.timers.add(c.now+Millisecond, timerDispatch, "")
	case c.now-b.Until > breakerForgets:
		*b = breaker{}
		c.record(Record{Type: RecordBackoffChanged, Provider: p.Name, Detail: "Its breaker is closed again: the provider answers, and no command was needed since."})
	}
}

// list is a List under way.
type list struct {
	id      int64
	full    bool  // asked without a cursor
	asked   int64 // mutation counter when it was sent (SHARD-13.5)
	started int64
	seen    int64
	changed int64
	shown   int // machines of the inventory that it has shown
}

// getPurpose is why a machine is asked for. The larger one wins when several want the same machine.
type getPurpose uint8

const (
	getForPoll      getPurpose = iota + 1 // its command was accepted: has it arrived?
	getForOwed                            // a fact about it was set aside
	getForStuck                           // it takes too long
	getForAbsent                          // a full List did not show it
	getForAdmin                           // a person wants to know
	getForMove                            // it is to be adopted from another shard
	getForOperation                       // an outcome is unknown
)

type want struct {
	machine string
}

// get is a Get under way.
type get struct {
	provider string
	machine  string
	purpose  getPurpose
	asked    int64
}

// outage says why the supply of a provider is withheld (SHARD-14.15).
type outage uint8

const (
	outageNone    outage = iota
	outageBreaker        // its circuit breaker is open
	outageStale          // its inventory is too old
	outageUnread         // it has never been listed in this process
)

func (o outage) String() string {
	return [...]string{"", "does not answer commands", "has not listed its machines", "has not answered"}[o]
}

// fence is the suspicion that a newer process has this shard's identity (SHARD-20.6). A provider that mixes up the order
// of tokens must not stop a healthy shard, and a zombie's second attempt is refused as surely as its first.
type fence struct {
	Suspect bool     `n:"1"`
	Since   int64    `n:"2"`
	Refused []string `n:"3"` // operations refused by the fence, oldest first
	Confirm string   `n:"4"` // operation of the confirming attempt; empty: not sent
	Tries   int      `n:"5"`
	NextTry int64    `n:"6"`
}
