package provider

import (
	"cmp"
	"sync"
	"time"
)

// transition is one ended transition, for ExplainMachine. Histories live in memory and a restart
// empties them; last_error still says why a machine is Failed.
type transition struct {
	machine      string
	kind         Kind // 0: the host was lost
	id           string
	result       State
	began, ended time.Time
	cause        string
}

// historiesMax bounds them for the whole provider: the newest 200,000 transitions, about 30 MB.
const historiesMax = 200_000

// histories is a ring of the newest transitions of all machines.
type histories struct {
	mu   sync.Mutex
	ring []transition
	next int
}

func (h *histories) add(t transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < historiesMax {
		h.ring = append(h.ring, t)
		return
	}
	h.ring[h.next] = t
	h.next = (h.next + 1) % historiesMax
}

// of returns the newest transitions of a machine, newest first.
func (h *histories) of(machine string) []transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []transition
	for i := range h.ring {
		t := h.ring[(h.next+len(h.ring)-1-i)%len(h.ring)]
		if t.machine != machine {
			continue
		}
		if found = append(found, t); len(found) == historyMax {
			break
		}
	}
	return found
}

// lastError remembers the newest transient error of a transition, so that a time-out can say what it was waiting for.
type lastError struct {
	mu      sync.Mutex
	attempt string // of the backend's newest attempt
	call    string // of the newest substrate call, empty once it succeeded
	atGate  bool   // the attempt under way did its work and waits for the node
	ofGate  bool   // attempt failed there
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt, l.ofGate, l.atGate = err.Error(), l.atGate, false
}

// worked notes that only the node is waited for: what the work met before was overcome.
func (l *lastError) worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call, l.atGate = "", true
	if !l.ofGate {
		l.attempt = ""
	}
}

// called notes how the newest try of a substrate call ended.
func (l *lastError) called(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = ""
	if err != nil {
		l.call = name + ": " + err.Error()
	}
}

func (l *lastError) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.call, l.attempt)
}

func cloneMap(m map[string]string) map[string]string {
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
