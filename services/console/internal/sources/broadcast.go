package sources

import "sync"

// broadcast wakes all who wait. The zero broadcast is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed at the next notify.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
