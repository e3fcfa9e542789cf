package replica

import "sync"

// taskGroup runs the goroutines of a Node. Calls may come while it closes: no goroutine starts after close was called.
type taskGroup struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// Go runs f, and reports whether it does.
func (c *taskGroup) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.group.Go(f)
	}
	return !c.closed
}

// close starts nothing any more and waits.
func (c *taskGroup) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.group.Wait()
}
