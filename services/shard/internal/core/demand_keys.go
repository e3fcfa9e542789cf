package core

import "fmt"

// The label keys that all clusters of a shard name together have a limit (SHARD-10.10). Why: when one cluster names another key, one step looks at all of them,
// so that keys of many clusters would hold up the acknowledgements of every other.
const (
	allLabelKeysMax    = 16_384
	allTopologyKeysMax = 2_048
	// A roll-up that names no more than so many is never refused for what others name.
	fewLabelKeys    = 32
	fewTopologyKeys = 8
)

// tooManyKeys refuses a roll-up with many keys of its own, if the clusters of this shard would name too many together. Keys that are named already cost
// nothing more.
func (c *rollups) tooManyKeys(e *RollupArrived) *Rejection {
	labels, topology := c.world.Demand.KeyTotals()
	for _, cl := range c.staging {
		labels, topology = labels+cl.staged.labels, topology+cl.staged.topology
	}
	newLabels, newTopology := c.world.Demand.NewKeys(e.LabelKeys, e.TopologyKeys)
	refuse := func(kind string, named, fresh, all, most, few int) *Rejection {
		return &Rejection{Reason: "too_large", NeedIndex: -1, FieldPath: "needs", Message: fmt.Sprintf("the roll-up names %d %s keys, %d of them new to this shard, "+
			"whose clusters together name %d of at most %d; name at most %d, or move clusters with many keys to another shard", named, kind, fresh, all, most, few)}
	}
	switch {
	case newTopology > 0 && len(e.TopologyKeys) > fewTopologyKeys && topology+newTopology > allTopologyKeysMax:
		return refuse("topology", len(e.TopologyKeys), newTopology, topology, allTopologyKeysMax, fewTopologyKeys)
	case newLabels > 0 && len(e.LabelKeys) > fewLabelKeys && labels+newLabels > allLabelKeysMax:
		return refuse("label", len(e.LabelKeys), newLabels, labels, allLabelKeysMax, fewLabelKeys)
	}
	return nil
}
