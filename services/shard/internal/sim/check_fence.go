package sim

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/core"

// doubt is what an older process may do at a provider whose fence has refused it without saying why: one attempt that
// confirms it, and another only if that one got no answer (SHARD-20.6).
type doubt struct {
	confirms string // operation of the attempt that is under way
	over     bool   // it was refused as well
}

// fenceSpoke takes the end of a command as the fence's word, if it is one.
func (c *checker) fenceSpoke(p *process, e core.CommandDone) {
	refused := e.Code == core.CodeFailedPrecondition
	if refused && e.HasFence && e.FenceEpoch > p.epoch {
		p.refused++
	}
	x, sent := p.inflight[e.Op]
	if !sent {
		x.Provider = c.providerOf(e.Machine)
	}
	d := p.doubts[x.Provider]
	switch {
	case d == nil && refused && p != c.s.proc:
		p.doubts[x.Provider] = &doubt{}
	case d == nil || d.confirms != e.Op:
	case refused:
		d.over = true
	case e.Code == core.CodeOK:
		delete(p.doubts, x.Provider)
	default:
		d.confirms = ""
	}
}

func (c *checker) providerOf(machine string) string {
	if m := c.w.machine(machine); m != nil {
		return m.Provider
	}
	return ""
}

// checkDoubt: after its first refused token an older process sends at most one confirming attempt (SHARD-33.5.8).
func (c *checker) checkDoubt(p *process, x core.Command) {
	d := p.doubts[x.Provider]
	if d == nil || p == c.s.proc {
		return
	}
	if d.over || d.confirms != "" {
		c.w.broken("zombie-insists", "SHARD-33.5.8", x.Machine, x.Cluster, "%s sends %s of %s after %s refused it, and a confirming attempt was made", p.name, x.RPC, x.Machine, x.Provider)
	}
	d.confirms = x.Op
}
