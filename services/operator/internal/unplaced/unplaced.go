// Package unplaced tells the shard of Pods that the scheduler cannot place although their row is satisfied: capacity that
// is enough on paper and fragmented in fact, which the shard cannot see (OP-11.5).
//
// A Watcher counts, per row, Pods that have been Unschedulable for a while for lack of resources alone, while the shard's
// last word on the row was "satisfied" and every machine behind it is Ready. Pods that wait for volumes, ports,
// affinities or groups are left out, by the scheduler's own message classes. The report is the full set each time, and the
// owners of the Pods are told as well: nothing else would say why they wait although the fleet has what they ask for.
//
// It is never demand: no count in it is bought. Start at Watcher.Run and short.
package unplaced

import (
	"context"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Feature is the shard's feature that allows the report.
const Feature = "unplaced-pods"

const (
	heldFor   = 30 * time.Second // that a Pod must be Unschedulable
	lookEvery = 2 * time.Second
	rowsMax   = 50_000 // on the wire
	toldMax   = 100    // Pods told at a look
)

// Config is what a Watcher needs. All are required.
type Config struct {
	Pods      *pods.Store
	Request   func(p *pods.Pod) (q *request.Request, row string) // the request of a Pod and its row; nil: it has none
	Satisfied func(row string) bool                              // the shard's last word
	Ready     func(row string) bool                              // every machine behind the row is Ready
	Send      func(*pb.UnplacedPods)                             // to a shard that wants it; nothing without one
	Note      func(notes.Note)                                   // to the owners of the Pods; it bounds how often
	Heartbeat time.Duration
}

// Watcher sends the report.
type Watcher struct{ Config }

// Run looks until ctx ends.
func (w Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last *pb.UnplacedPods
	var sent time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		report, waiting := w.look(now)
		for _, p := range waiting[:min(len(waiting), toldMax)] {
			w.Note(notes.Note{About: notes.Subject{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
				Warning: true, Reason: ReasonFragmented, Message: says})
		}
		if !proto.Equal(report, last) || now.Sub(sent) >= w.Heartbeat {
			w.Send(report)
			last, sent = report, now
		}
	}
}

// ReasonFragmented is the reason of the event that owners of unplaced Pods read (OP-14.3).
const ReasonFragmented = "CapacityFragmented"

const says = "the fleet counts this Pod's demand as covered: the machines for Pods like it have enough, but no node has room for one in one piece, " +
	"because others took it up. If it still waits in two minutes, the fleet adds room for it, unless it must share a topology with others"

// Report is the full set now.
func (w Watcher) Report(now time.Time) *pb.UnplacedPods {
	report, _ := w.look(now)
	return report
}

func (w Watcher) look(now time.Time) (out *pb.UnplacedPods, waiting []*pods.Pod) {
	rows := map[string]*pb.UnplacedRow{}
	sums := map[string]map[string]*big.Int{}
	ready := map[string]bool{} // asked once a row: the answer takes a look at every machine
	for _, p := range w.Pods.Unschedulable() {
		c := p.Unschedulable()
		if c == nil || now.Sub(c.LastTransitionTime.Time) < heldFor || !short(c.Message) {
			continue
		}
		q, id := w.Request(p)
		if q == nil || id == "" || !w.Satisfied(id) {
			continue
		}
		if _, asked := ready[id]; !asked {
			ready[id] = w.Ready(id)
		}
		if !ready[id] {
			continue
		}
		r := rows[id]
		if r == nil {
			if len(rows) >= rowsMax {
				continue
			}
			r = &pb.UnplacedRow{RowId: id}
			rows[id], sums[id] = r, map[string]*big.Int{}
		}
		r.Pods++
		waiting = append(waiting, p)
		if since := c.LastTransitionTime.UnixNano(); r.OldestSinceUnixNanos == 0 || since < r.OldestSinceUnixNanos {
			r.OldestSinceUnixNanos = since
		}
		for _, a := range q.Spec.Resources {
			if sums[id][a.Name] == nil {
				sums[id][a.Name] = new(big.Int)
			}
			sums[id][a.Name].Add(sums[id][a.Name], big.NewInt(a.Milli))
		}
	}
	out = &pb.UnplacedPods{}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		r := rows[id]
		r.Resources = map[string]string{}
		for name, milli := range sums[id] {
			r.Resources[name] = text(milli)
		}
		out.Rows = append(out.Rows, r)
	}
	return out, waiting
}

func text(milli *big.Int) string {
	if milli.IsInt64() {
		return resource.NewMilliQuantity(milli.Int64(), resource.DecimalSI).String()
	}
	return milli.String() + "m"
}

// classes are one entry per class of the scheduler's summary, such as "3 Insufficient cpu".
var classes = regexp.MustCompile(`(\d+) ([^,.]+)`)

// short says that a Pod waits for resources on some node and for nothing else anywhere: each class of the summary is a
// shortage, or says that the node is not for this Pod at all.
func short(message string) bool {
	_, summary, ok := strings.Cut(message, " nodes are available: ")
	if !ok {
		return false
	}
	summary, _, _ = strings.Cut(summary, " preemption: ")
	lacking := false
	for _, m := range classes.FindAllStringSubmatch(summary, -1) {
		class := strings.TrimSpace(m[2])
		switch {
		case strings.HasPrefix(class, "Insufficient "), class == "Too many pods":
			lacking = true
		case strings.Contains(class, "didn't match Pod's node affinity/selector"), strings.Contains(class, "untolerated taint"),
			strings.Contains(class, "were unschedulable"), strings.Contains(class, "didn't match the requested node name"):
			// not a node for this Pod
		default:
			return false
		}
	}
	return lacking
}
