package replica

import "sync"

// crew are the goroutines of a Node. Calls come at any time, also while it closes: nothing is started once it waits for the
// end of what was.
type crew struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// Go runs f, and reports whether it does.
func (c *crew) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.group.Go(f)
	}
	return !c.closed
}

// close starts nothing any more and waits.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.group.Wait()
}
