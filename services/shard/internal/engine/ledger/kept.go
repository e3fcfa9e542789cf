package ledger

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// KeptRowsMax bounds what a restart remembers of one cluster. Rows beyond it buy once more what they had given back.
const KeptRowsMax = 4096

// KeptRow is what a restart remembers of one row: headroom that its Pods run on, and what is served elsewhere (ENG-11.17, 11.19). It has
// no times: clocks begin again with the process.
type KeptRow struct {
	Row   demand.RowKey `n:"1"`
	Units int64         `n:"2"` // served elsewhere
	Held  int64         `n:"3"` // by its own claims and shares
	Pods  int64         `n:"4"` // that it got headroom for
	Total int64         `n:"5"` // units that it shall have in all
	Asked int64         `n:"6"` // the most that it asked for when headroom grew
	Own   int64         `n:"7"` // units that its own machines shall hold
	Base  int64         `n:"8"` // what it asked for when headroom last grew; 0 is not known
}

func (r *KeptRow) size() int64 { return r.Units + r.Pods }

// Kept is what a restart has to know of a cluster, by row.
func (s *Sharing) Kept(cluster string) (rows []KeptRow) {
	e := s.clusters[cluster]
	if e == nil {
		return nil
	}
	at := map[demand.RowKey]int{}
	row := func(k demand.RowKey) *KeptRow {
		i, known := at[k]
		if !known {
			i, at[k] = len(rows), len(rows)
			rows = append(rows, KeptRow{Row: k})
		}
		return &rows[i]
	}
	for k, x := range e.elsewhere.rows {
		r := row(k)
		r.Units, r.Held = x.units, x.held
	}
	for k, x := range e.headroom.rows {
		r := row(k)
		r.Pods, r.Total, r.Asked, r.Own, r.Base = x.pods, x.total, x.asked, x.own, x.base
	}
	if len(rows) > KeptRowsMax {
		slices.SortFunc(rows, func(a, b KeptRow) int { return cmp.Or(cmp.Compare(b.size(), a.size()), compareRowKeys(a.Row, b.Row)) })
		rows = rows[:KeptRowsMax]
	}
	slices.SortFunc(rows, func(a, b KeptRow) int { return compareRowKeys(a.Row, b.Row) })
	return rows
}

// Inherit takes what the process before kept of a cluster. It counts once the cluster says what it asks for: before that, no row is known
// and all of it would seem to be over.
func (s *Sharing) Inherit(cluster string, rows []KeptRow) {
	s.entry(cluster).inherited = rows[:min(len(rows), KeptRowsMax)]
}

// adopt makes inherited rows count, as if they had got their headroom now.
func (e *sharingEntry) adopt(now int64) {
	rows := e.inherited
	e.inherited = nil
	for _, r := range rows {
		if r.Units > 0 && r.Held >= 0 {
			e.elsewhere.rows[r.Row] = rowElsewhere{r.Units, r.Held}
		}
		if r.Total > 0 && r.Pods >= 0 {
			e.headroom.rows[r.Row] = rowHeadroom{pods: r.Pods, total: r.Total, asked: r.Asked, own: max(0, r.Own), base: max(0, r.Base), grown: now, times: 1}
			e.headroom.grown = []int64{now}
		}
	}
}

// Recount computes headroom again where demand has changed, and lists the clusters whose headroom changed, ascending. It is
// called before a plan, so that a row that asks for more uses its headroom before anything is bought (ENG-11.17).
func (s *Sharing) Recount(w *engine.World, now int64) (changed []string) {
	for c, e := range s.clusters {
		d := w.Demand.Cluster(c)
		if d == nil {
			continue
		}
		inherits := len(e.inherited) > 0 && len(d.Needs) > 0
		if inherits {
			e.adopt(now)
		}
		if len(e.headroom.rows)+len(e.elsewhere.rows) == 0 || d.Version == e.headroom.counted {
			continue
		}
		e.headroom.counted = d.Version
		room, served := e.headroom.forget(d.Needs), e.elsewhere.forget(d.Needs)
		if room || served || inherits {
			changed = append(changed, c)
		}
	}
	slices.Sort(changed)
	return changed
}
