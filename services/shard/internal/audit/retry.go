package audit

import (
	"errors"
	"os"
	"time"
)

// A log that could not be written continues with a checkpoint of the whole core, which the core's loop has to make: 1.3 s of it in a
// large shard. So a disk that stays full must not ask for one after the other (SHARD-28.4). The next is asked for after a pause that
// doubles, and only once a probe could be written.
const (
	retryFirst = time.Second
	retryMax   = 5 * time.Minute
	probeBytes = 1 << 20
)

// retry is when a log that could not be written tries again. Run's goroutine only.
type retry struct {
	wait time.Duration // 0: the last attempt went well
	at   time.Time
}

// failed puts the next attempt off.
func (r *retry) failed() {
	r.wait = min(max(retryFirst, 2*r.wait), retryMax)
	r.at = time.Now().Add(r.wait)
}

// worked forgets the failures once a segment was written for longer than they made it wait.
func (r *retry) worked(since time.Time) {
	if time.Since(since) > r.wait {
		r.wait = 0
	}
}

// mayBegin reports whether it is time to ask for a checkpoint, and the disk takes one.
func (l *Log) mayBegin() bool {
	if l.retry.wait == 0 {
		return true
	}
	if time.Now().Before(l.retry.at) {
		return false
	}
	if err := probe(l.cfg.Dir); err != nil {
		l.retry.failed()
		l.cfg.OnError()
		l.cfg.Log.Error("the decision log cannot be written: decisions are not recorded until the disk has free space again",
			"next_attempt", l.retry.wait, "err", err)
		return false
	}
	return true
}

// probe writes a file and removes it.
func probe(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "probe-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeBytes))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}
