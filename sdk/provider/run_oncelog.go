package provider

import (
	"sync"
)

// onceLog remembers what was said about a subject, so that the same sentence is logged when it changes and not at each
// round. It forgets everything once it holds too much: better to repeat than to grow.
type onceLog struct {
	mu   sync.Mutex
	said map[string]string
}

const onceLogMax = 10_000

// news says whether text is new for the subject.
func (o *onceLog) news(subject, text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said[subject] == text {
		return false
	}
	if o.said == nil || len(o.said) >= onceLogMax {
		o.said = map[string]string{}
	}
	o.said[subject] = text
	return true
}

// reject counts and logs an observed record that breaks a rule; the last good one stays (PROV-9.10).
func (p *Provider) reject(reason, machine string, err error) {
	p.metrics.rejected.WithLabelValues(reason).Inc()
	if p.rejected.news(reason+machine, err.Error()) {
		p.log.Warn("an observed record violates the contract and is skipped", "reason", reason, "machine", machine, "err", err)
	}
}
