package session

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/core"

// FrameOf is how an effect toward an operator is queued: its class, key and size. The last result is false for other
// effects. The simulator queues with it; a Hello ack is rendered for a shard only by its Handler.
func FrameOf(e core.Effect) (f Frame, cluster string, session int64, ok bool) {
	switch e := e.(type) {
	case core.SendAck:
		return (*Handler)(nil).ackFrame(e), e.Cluster, e.Session, true
	case core.PullBootstrap:
		return pullFrame(e), e.Cluster, e.Session, true
	case core.SendReclaim:
		return reclaimFrame(e), e.Cluster, e.Session, true
	case core.SendNodeState:
		return nodeFrame(e), e.Cluster, e.Session, true
	case core.SendHint:
		return hintFrame(e), e.Cluster, e.Session, true
	case core.SendNeedStatus:
		return statusFrame(e), e.Cluster, e.Session, true
	}
	return Frame{}, "", 0, false
}
