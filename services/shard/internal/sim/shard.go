package sim

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// shard is one shard of the fleet: its disk, its process or two, and the rules that watch it.
type shard struct {
	w        *world
	id       string
	config   core.Config
	clusters []*cluster
	disk     disk
	proc     *process                  // the one that should be acting
	twin     *process                  // an older one that still runs
	open     map[int64]core.AdminAsked // orders without an answer
	check    *checker
}

// disk is what survives a process.
type disk struct {
	epoch     int64
	pauses    map[string]core.Pause
	dryRun    bool
	retired   []string
	forgotten []core.Forgotten
	journal   map[string][]byte
	room      map[string][]byte
	control   map[string][]byte // what the coordinator ordered
	reserved  map[string][]byte
}

func newDisk() disk {
	return disk{pauses: map[string]core.Pause{}, journal: map[string][]byte{}, room: map[string][]byte{}, control: map[string][]byte{}, reserved: map[string][]byte{}}
}

// put writes one key, or takes it away.
func (d *disk) put(x core.Persist) {
	set := func(m map[string][]byte) {
		if x.Value == nil {
			delete(m, x.Key)
		} else {
			m[x.Key] = x.Value
		}
	}
	switch x.Bucket {
	case core.BucketJournal:
		set(d.journal)
	case core.BucketRoom:
		set(d.room)
	case core.BucketControl:
		set(d.control)
	case core.BucketReservations:
		set(d.reserved)
	case core.BucketPauses:
		delete(d.pauses, x.Key)
	case core.BucketRetired:
		d.retired = slices.DeleteFunc(d.retired, func(n string) bool { return n == x.Key })
	case core.BucketForgotten:
		d.forgotten = slices.DeleteFunc(d.forgotten, func(f core.Forgotten) bool { return f.Machine == x.Key })
	}
}

// buildShards makes the shards. All of them are at the same providers.
func (w *world) buildShards() {
	for i := range w.nShard {
		s := &shard{w: w, id: fmt.Sprintf("shard-%d", i), config: w.config, disk: newDisk(), open: map[int64]core.AdminAsked{}}
		s.config.ShardID, s.config.Coordinated = s.id, w.coordinated
		s.check = newChecker(s)
		w.shards = append(w.shards, s)
	}
}

// struckShard is the shard that a fault of a process strikes.
func (w *world) struckShard(r *random) *shard {
	if len(w.shards) == 1 {
		return w.shards[0]
	}
	return pick(r, w.shards)
}
