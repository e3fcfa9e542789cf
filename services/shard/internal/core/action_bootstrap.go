package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// machineIDKey is the requirement that names the machine to a template (SHARD-16.2).
const machineIDKey = "bigfleet.lucy.sh/machine-id"

// pull asks the cluster's operator for a bootstrap blob (SHARD-16.1).
func (c *bootstraps) pull(o *operation) {
	cl := c.clusters.get(o.Cluster)
	o.Pulls++
	o.Phase, o.PullAt, o.BlobAt = phasePulling, c.now, 0
	delete(c.ops.byRequest, o.Request)
	o.Request = wireID(o.ID, "bootstrap", o.Pulls)
	c.ops.byRequest[o.Request] = o
	c.timers.add(c.now+c.cfg.BootstrapTimeout, timerPull, o.Request)
	c.emit(PullBootstrap{Request: o.Request, Cluster: cl.Name, Session: cl.Session,
		Requirements: translate(o.Reqs, o.Domain, o.Machine), Machine: c.world.Inventory.Machine(o.Index)})
}

// translate makes the requirements that an operator sees: Same is In with the chosen value, and the machine is named,
// so that a template that knows no extension can label the node.
func translate(reqs []demand.Requirement, domain, machine string) []demand.Requirement {
	out := make([]demand.Requirement, 0, len(reqs)+1)
	for _, r := range reqs {
		if r.Op == demand.Same {
			r = demand.Requirement{Key: r.Key, Op: demand.In, Values: []string{domain}}
		}
		out = append(out, r)
	}
	return append(out, demand.Requirement{Key: machineIDKey, Op: demand.In, Values: []string{machine}})
}

// bootstrapAnswered takes the operator's answer. Late, unknown and foreign ones are counted and dropped; their bytes go.
func (c *bootstraps) bootstrapAnswered(e BootstrapAnswered) {
	o := c.ops.byRequest[e.Request]
	if o == nil || o.Phase != phasePulling || o.Cluster != e.Cluster {
		c.sample(MetricStrayAnswers, "bootstrap", 1)
		c.emit(DropBlob{Request: e.Request})
		return
	}
	cl := c.clusters.get(o.Cluster)
	if e.Undeliverable {
		c.commands.rollBack(o, OutcomeSessionLost, "the bootstrap request could not be sent")
		return
	}
	if !cl.current(e.Session) {
		c.sample(MetricStrayAnswers, "bootstrap", 1)
		return
	}
	c.sample(MetricRequestBootstrap, "", c.now-o.PullAt)
	cl.OneProbe, cl.Timeouts = false, backoff{}
	if e.Error != "" {
		c.blobRefused(o, cl, e)
		return
	}
	delete(cl.blobText, o.Need.Fingerprint)
	o.BlobAt, o.BlobTTL = c.now, e.TTL
	o.Phase = phaseReady
	c.cycle.Redispatch = true
}

// blobRefused ends the operation before the provider was touched: nothing is Failed, the machine returns to Idle, and
// the operator's words become the reason of the shortfall (SHARD-16.4, 16.5).
func (c *bootstraps) blobRefused(o *operation, cl *cluster, e BootstrapAnswered) {
	fp := o.Need.Fingerprint
	r := rampBlob
	if e.Retryable {
		r = rampBlobRetryable
	}
	c.blobBackoff(cl, fp, r)
	cl.blobText[fp] = clipText(e.Error)
	c.commands.rollBack(o, OutcomeBlobError, clipText(e.Error))
}

func (c *bootstraps) blobBackoff(cl *cluster, fingerprint string, r ramp) {
	b := cl.blobs[fingerprint]
	if b == nil {
		b = &backoff{}
		cl.blobs[fingerprint] = b
	}
	b.fail(r, c.now, cl.Name+"\x00"+fingerprint)
	cl.holds = true
	cl.changed()
	c.timers.add(b.Until, timerDispatch, "")
	c.holdsEnd(cl, b.Until)
}

// blobSuspected counts a refused or failed Configure against the need's template: one tenant's blob must not burn shared
// machines (SHARD-14.10).
func (c *bootstraps) blobSuspected(o *operation, why string) {
	if cl := c.clusters.get(o.Cluster); cl != nil {
		c.blobBackoff(cl, o.Need.Fingerprint, rampBlob)
		cl.failed[o.Need.Fingerprint] = clipText(why)
	}
}

// templateWorked ends the row of failures of a template that configured a machine (SHARD-16.9).
func (c *bootstraps) templateWorked(o *operation) {
	cl := c.clusters.get(o.Cluster)
	if cl == nil || cl.blobs[o.Need.Fingerprint] == nil {
		return
	}
	delete(cl.blobs, o.Need.Fingerprint)
	delete(cl.failed, o.Need.Fingerprint)
	cl.holds = true
	cl.changed()
}

// pullTimedOut ends a pull that the operator did not answer. Until one is answered, the cluster gets one pull at a time
// (SHARD-15.4), after a pause.
func (c *bootstraps) pullTimedOut(request string) {
	o := c.ops.byRequest[request]
	if o == nil || o.Phase != phasePulling {
		return
	}
	if cl := c.clusters.get(o.Cluster); cl != nil {
		cl.OneProbe = true
		cl.Timeouts.fail(rampClusterTimeout, c.now, cl.Name)
		cl.holds = true
		c.timers.add(cl.Timeouts.Until, timerDispatch, "")
		c.holdsEnd(cl, cl.Timeouts.Until)
	}
	c.commands.rollBack(o, OutcomeBlobTimeout, fmt.Sprintf("the operator did not answer the bootstrap request within %d s", c.cfg.BootstrapTimeout/Second))
}

// holdsEnd makes the cycle compute the cluster's holds again when one may have ended.
func (c *bootstraps) holdsEnd(cl *cluster, at int64) {
	c.cycle.HoldEnds = append(c.cycle.HoldEnds, holdEnd{at, cl.Name})
}

// blobFresh reports whether Configure may still be sent with the blob at hand: not with less than ten seconds, or half of
// its life, left (SHARD-16.7).
func (c *bootstraps) blobFresh(o *operation) bool {
	if o.BlobTTL <= 0 {
		return true
	}
	return o.BlobAt+o.BlobTTL-c.now >= min(blobMargin, o.BlobTTL/2)
}

// sendConfigure sends Configure, or pulls once more when the blob is too old.
func (c *bootstraps) sendConfigure(o *operation) {
	if o.BlobAt != 0 && c.blobFresh(o) {
		c.commands.send(o)
		return
	}
	c.dispatcher.releaseSlot(o)
	if o.BlobAt != 0 {
		c.emit(DropBlob{Request: o.Request})
	}
	switch cl := c.clusters.get(o.Cluster); {
	case o.Pulls >= pullAttempts:
		o.BlobAt = 0
		c.commands.rollBack(o, OutcomeBlobExpired, "the boot data expired twice before Configure could be sent")
	case cl == nil || !cl.connected():
		o.BlobAt = 0
		c.commands.rollBack(o, OutcomeSessionLost, "the boot data expired, and the cluster has no session to request it again")
	case c.dispatcher.clustersBusy()[o.Cluster] > c.dispatcher.clusterLimit(cl): // the operation itself is one of them
		o.BlobAt = 0
		c.commands.rollBack(o, OutcomeBlobExpired, "the boot data expired, and the cluster may have no more bootstrap requests now")
	case c.clusterCalls(o.Cluster) >= c.dispatcher.clusterLimit(cl):
		o.BlobAt = 0 // it stays ready and pulls when one of the others has ended (SHARD-15.4)
	default:
		c.pull(o)
	}
}

// clusterCalls counts the pulls and Configures of a cluster that are under way now.
func (c *bootstraps) clusterCalls(name string) (n int64) {
	for _, o := range c.ops.list {
		if !o.Deleted && o.Kind == KindBootstrap && o.Cluster == name && (o.Phase == phasePulling || o.Phase == phaseSending) {
			n++
		}
	}
	return n
}
