package sim

import (
	"runtime/debug"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// digest is FNV-1a over what the core said, in order.
type digest uint64

func newDigest() digest { return 14695981039346656037 }

func (h digest) u64(v uint64) digest {
	for range 8 {
		h = (h ^ digest(v&255)) * 1099511628211
		v >>= 8
	}
	return h
}

func (h digest) str(s string) digest {
	for i := range len(s) {
		h = (h ^ digest(s[i])) * 1099511628211
	}
	return h.u64(uint64(len(s)))
}

func (h digest) sum() uint64 { return uint64(h) }

// effect adds what an effect asks for. Samples, publications and texts for people are left out: they ask for nothing.
func (h *digest) effect(x core.Effect) {
	if _, beside := x.(*core.ComparePlan); beside { // which plans are compared is the shell's choice
		return
	}
	d := h.u64(uint64(core.KindOfEffect(x)))
	switch x := x.(type) {
	case core.Command:
		d = d.str(x.Op).u64(uint64(x.Attempt)).u64(uint64(x.RPC)).str(x.Machine).str(x.Cluster).str(x.Blob).u64(uint64(x.GraceSecs))
		for _, kv := range x.Metadata {
			d = d.str(kv.Key).str(kv.Value)
		}
	case core.GetMachine:
		d = d.u64(uint64(x.Get)).str(x.Machine)
	case core.ListMachines:
		d = d.u64(uint64(x.List)).str(x.Provider).str(string(x.Cursor))
	case core.PullBootstrap:
		d = d.str(x.Request).str(x.Cluster).u64(uint64(x.Session)).str(x.Machine.ID)
	case core.DropBlob:
		d = d.str(x.Request)
	case core.SendReclaim:
		d = d.str(x.Instruction).str(x.Cluster).u64(uint64(x.Session)).str(x.Machine).str(x.Node).u64(uint64(x.GraceSecs))
	case core.SendNodeState:
		d = d.str(x.Cluster).u64(uint64(x.Session)).str(x.Machine.ID).u64(uint64(x.Machine.State)).str(x.Node)
	case core.SendAck:
		d = d.str(x.Cluster).u64(uint64(x.Session)).str(x.Echo)
	case core.Persist:
		d = d.str(x.Bucket).str(x.Key)
	case core.Record:
		d = d.u64(uint64(x.Type)).str(x.Op).u64(uint64(x.Kind)).str(x.Machine).str(x.Cluster).str(x.Outcome).u64(uint64(x.Score))
	case core.WakeAt:
		d = d.u64(uint64(x.Mono))
	}
	*h = d
}

// stack is the useful part of a panic's stack.
func stack() string {
	var keep []string
	for line := range strings.SplitSeq(string(debug.Stack()), "\n") {
		if strings.Contains(line, "/internal/core") || strings.Contains(line, "/internal/engine") || strings.Contains(line, "/internal/inventory") ||
			strings.Contains(line, "/internal/demand") {
			keep = append(keep, strings.TrimSpace(line))
		}
	}
	return strings.Join(keep[:min(len(keep), 24)], "\n")
}
