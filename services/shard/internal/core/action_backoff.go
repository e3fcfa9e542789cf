package core

// Durations of the core are nanoseconds of At.Mono. The package imports no clock, so it has its own units.
const (
	Millisecond int64 = 1_000_000
	Second            = 1_000 * Millisecond
	Minute            = 60 * Second
	Hour              = 60 * Minute
)

// ramp is a doubling pause with a ceiling.
type ramp struct{ first, most int64 }

// The ramps of SHARD-14.7, 14.9, 14.11, 14.12, 16.9 and 13.17.
var (
	rampNotTouched     = ramp{Second, Minute}
	rampRefused        = ramp{30 * Second, Hour}
	rampAsk            = ramp{Second, 30 * Second}
	rampDrain          = ramp{10 * Minute, 2 * 60 * Minute}
	rampPool           = ramp{30 * Second, 15 * Minute}
	rampBreaker        = ramp{5 * Second, Minute}
	rampBlob           = ramp{10 * Second, 10 * Minute}
	rampBlobRetryable  = ramp{Second, 30 * Second}
	rampClusterTimeout = ramp{5 * Second, 5 * Minute}
	rampList           = ramp{Second, 10 * Second}
)

// after is the pause behind the n-th failure in a row, counted from 1, without jitter.
func (r ramp) after(n int) int64 {
	d := r.first
	for i := 1; i < n && d < r.most; i++ {
		d *= 2
	}
	return min(d, r.most)
}

// backoff is a row of failures and the time before which nothing is tried again.
type backoff struct {
	Fails   int   `n:"1"`
	Until   int64 `n:"2"`
	Refused int   `n:"3"` // of them after which the provider has had the command
}

// fail records one more failure; the pause is jittered by 20% either way, by subject and attempt (SHARD-14.9).
func (b *backoff) fail(r ramp, now int64, subject string) {
	b.Fails++
	if r == rampRefused {
		b.Refused++
	}
	d := r.after(b.Fails)
	b.Until = now + jitter(d, 20, subject, b.Fails)
}

// jitter spreads d by up to percent either way. It is a hash of the subject and the attempt, so that a replay computes
// the same pause and two subjects differ (SHARD-4.4).
func jitter(d int64, percent int64, subject string, attempt int) int64 {
	h := newHash().str(subject).u64(uint64(attempt)).sum()
	span := d / 100 * percent
	if span <= 0 {
		return d
	}
	return d - span + int64(h%uint64(2*span+1))
}
