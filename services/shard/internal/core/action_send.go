package core

import (
	"strconv"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// send emits the operation's command. The caller has made sure of a slot.
func (c *commands) send(o *operation) {
	o.Attempt++
	o.Phase, o.Sent = phaseSending, c.now
	c.provider(o.Provider).Breaker.sent()
	if o.Attempt == 1 || o.Kind == KindBootstrap {
		c.recovery.journalOp(o)
	}
	cmd := Command{Op: o.ID, Attempt: o.Attempt, Provider: o.Provider, RPC: o.rpc(), Machine: o.Machine, Timeout: c.cfg.ExecuteTimeout}
	switch o.rpc() {
	case RPCConfigure:
		cmd.Cluster, cmd.Blob, cmd.Metadata = o.Cluster, o.Request, c.attribution(o.Attribution)
	case RPCDrain:
		cmd.GraceSecs = c.draining.graceLeft(o)
		if o.DrainEnds > 0 && o.Attempt > 1 {
			cmd.GraceSecs = max(0, (o.DrainEnds-c.now)/Second)
		}
	}
	c.emit(cmd)
}

// attribution is what Configure stores at the provider (SHARD-13.14), in key order.
func (c *commands) attribution(s Attribution) []KeyVal {
	return []KeyVal{
		{metaGroup, s.Group},
		{metaInterruption, dollars(s.Interruption)},
		{metaFingerprint, s.Fingerprint},
		{metaPriority, strconv.FormatInt(int64(s.Priority), 10)},
		{metaReclamation, dollars(s.Reclamation)},
		{metaOwner, c.cfg.ShardID},
	}
}

// Keys of shard_metadata (WIRE-11).
const (
	metaGroup        = "bigfleet.lucy.sh/assigned-group"
	metaInterruption = "bigfleet.lucy.sh/assigned-interruption-penalty-dollars"
	metaFingerprint  = "bigfleet.lucy.sh/assigned-need-fingerprint"
	metaPriority     = "bigfleet.lucy.sh/assigned-priority"
	metaReclamation  = "bigfleet.lucy.sh/assigned-reclamation-penalty-dollars"
	metaOwner        = "bigfleet.lucy.sh/owner-shard"
)

// MetadataKeys names the keys of shard_metadata for the gate that reads them back.
func MetadataKeys() (priority, interruption, reclamation, fingerprint, group, owner string) {
	return metaPriority, metaInterruption, metaReclamation, metaFingerprint, metaGroup, metaOwner
}

// dollars writes whole half-dollars as the shortest decimal that reads back as the same float64.
func dollars(p demand.Penalty) string {
	whole := strconv.FormatInt(int64(p)/2, 10)
	if p%2 != 0 {
		return whole + ".5"
	}
	return whole
}
