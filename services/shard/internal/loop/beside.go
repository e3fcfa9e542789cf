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
	l.besides = true
	l.making.Store(true)
	began := time.Now()
	l.beside.Go(func() {
		defer func() {
			l.lasted = time.Since(began)
			if p := recover(); p != nil {
				l.failed = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			l.making.Store(false)
			l.ended.TryPush(ends)
		}()
		work()
	})
}

// made lets those go on that waited for what ran beside the loop, before others.
func (l *Loop) made() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.besides, l.took = false, l.lasted
	var ready, bulk []*Source
	for _, s := range l.aside {
		if s.bulk {
			bulk = append(bulk, s)
		} else {
			ready = append(ready, s)
		}
	}
	l.ready, l.bulk, l.aside = append(ready, l.ready...), append(bulk, l.bulk...), nil
}
