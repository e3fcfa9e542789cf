package cover

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
)

// DomainIndex is a candidate index of what one domain has left for one Need. It serves one question; its memory is reused.
type DomainIndex struct{ mk Index }

// Fill makes the candidate index from classes and how many machines of each are left.
func (x *DomainIndex) Fill(c *Indexes, m *match.Matcher, f *match.Projection, b demand.Bucket, slots []Slot) {
	x.mk.m, x.mk.f, x.mk.bucket = m, f, b
	c.fill(&x.mk, slots)
}
