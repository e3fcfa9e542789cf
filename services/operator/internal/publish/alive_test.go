package publish

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// OP-3.5: an operator whose demand stands still asks to be restarted; one without a session, or without anything to say, does not, and
// neither does one that stands by.
func TestAliveWhileDemandIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		free := make(chan struct{})
		b := newBench(t, func(c *Config) {
			c.Overhead = func() map[string]string {
				if hang.Load() {
					<-free
				}
				return nil
			}
		})
		alive := func(when string) {
			t.Helper()
			if err := b.Alive(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		time.Sleep(time.Hour)
		alive("without a session")
		b.Synced()
		b.open()
		time.Sleep(time.Hour + 5*time.Second) // between two heartbeats: nothing holds the lock that Touch takes
		alive("with nothing new")
		hang.Store(true)
		b.Touch()
		time.Sleep(time.Minute)
		alive("a turn that takes a minute")
		time.Sleep(20 * time.Second)
		if b.Alive() == nil {
			t.Error("alive although a turn has not ended for more than a heartbeat and a minute")
		}
		close(free)
		time.Sleep(time.Second)
		alive("afterwards")
	})
	standby := Publisher{Config: Config{Heartbeat: time.Second}}
	if err := standby.Alive(); err != nil {
		t.Errorf("standing by: %v", err)
	}
}
