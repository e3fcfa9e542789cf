package loop

import (
	"fmt"
	"runtime/debug"
	"time"
)

// mayStep reports whether an item need not wait for what runs beside the loop.
func (l *Loop) mayStep(it item) bool { return it.event != nil && l.cfg.Takes(it.event) }

// runBeside begins what the core wants to be made beside the loop.
func (l *Loop) runBeside() {
	if l.cfg.Beside == nil {
		return
	}
	work, ends := l.cfg.Beside()
	if work == nil {
		return
	}
	l.making.Store(true)
	began := time.Now()
	l.beside.Go(func() {
		defer func() {
			l.lasted = time.Since(began)
			if p := recover(); p != nil {
				l.failed = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			l.ended.TryPush(ends)
		}()
		work()
	})
}

// made lets those go on that waited for what ran beside the loop, before others, and returns how long that took. If it panicked, so does this.
func (l *Loop) made() time.Duration {
	if l.failed != nil {
		panic(l.failed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making.Store(false)
	var ready, bulk []*Source
	for _, s := range l.aside {
		if s.bulk {
			bulk = append(bulk, s)
		} else {
			ready = append(ready, s)
		}
	}
	l.ready, l.bulk, l.aside = append(ready, l.ready...), append(bulk, l.bulk...), nil
	return l.lasted
}
