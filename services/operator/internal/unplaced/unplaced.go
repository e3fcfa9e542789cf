// Package unplaced reports Pods that the scheduler cannot place although their row is satisfied. The capacity is enough in
// total and fragmented in fact, which the shard cannot see (OP-11.5).
//
// A Watcher counts, per row, the Pods that are Unschedulable because one more machine is missing, for a while or with every
// present node seen, while the newest status of the row is satisfied, or says that a provider does not answer, and every machine of the row is Ready. It leaves out Pods
// that wait for unbound volumes, affinity, groups, or ports without a limit per host, by the scheduler's own message classes, and
// as many of a workload as Pods of it are about to leave.
// Each report is the full set. The owners of the Pods get an event, because nothing else explains why the Pods wait.
//
// A report is not demand: the shard buys nothing for its counts. Start at Watcher.Run and short.
package unplaced

import (
	"context"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Feature is the shard's feature that allows the report.
const Feature = "unplaced-pods"

const (
	unschedulableFor = 30 * time.Second // that a Pod must be Unschedulable
	coveredFor       = time.Second      // the same, if the scheduler has seen every node of now, and as long after the last node of the row
	checkEvery       = time.Second
	placeSoon        = time.Minute      // within which the end of a Pod makes room for the next one of its workload
	placeLate        = 10 * time.Second // beyond its grace, after which an ending Pod does not end
	rowsMax          = 50_000           // on the wire
	eventsMax        = 100              // events per check
)

// Config is what a Watcher needs. All are required.
type Config struct {
	Pods      *pods.Store
	Request   func(p *pods.Pod) (q *request.Request, row string) // the request of a Pod and its row; nil: it has none
	Counted   func(p *pods.Pod) bool                             // the shard has the request of a Pod
	Ahead     func(f func(row string))                           // the rows of requests that no Pod controls
	Satisfied func(row string) bool                              // the newest status of a row
	Missing   func(row string) bool                              // that status says that a provider does not answer
	Ready     func(row string) (since time.Time, ok bool)        // every machine behind the row is Ready; zero: it has none
	Nodes     func() int                                         // of the cluster, now
	AllNodes  func() []*corev1.Node                              // the same, with their labels
	TakesPods func(node string) bool                             // a node is Ready and not cordoned
	Confined  func(row string) bool                              // a row says in which domains its Pods may be
	Send      func(*pb.UnplacedPods)                             // to a shard that wants it; nothing without one
	Record    func(events.Event)                                 // an event for a Pod; it limits the rate
	Heartbeat time.Duration
}

// Watcher sends the report.
type Watcher struct{ Config }

// Run reports until ctx ends.
func (w Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
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
		report, waiting := w.unplaced(now)
		for _, x := range waiting[:min(len(waiting), eventsMax)] {
			x.event.Regarding = events.Subject{APIVersion: "v1", Kind: "Pod", Namespace: x.pod.Namespace, Name: x.pod.Name, UID: x.pod.UID}
			x.event.Warning = true
			w.Record(x.event)
		}
		if !proto.Equal(report, last) || now.Sub(sent) >= w.Heartbeat {
			w.Send(report)
			last, sent = report, now
		}
	}
}

// ReasonFragmented is the reason of the event that owners of unplaced Pods read (OP-14.3).
const ReasonFragmented = "CapacityFragmented"

const fragmentedMessage = "The machines for Pods like this one have enough capacity in total, but no single node has enough left, because other Pods use it. " +
	"BigFleet adds capacity for it when every machine on the way is Ready; for Pods that share a topology domain, as far as that has free machines."

// ReasonNotHelped is the reason of the event on Pods that wait for what no machine solves (OP-14.3).
const ReasonNotHelped = "CapacityDoesNotHelp"

// podEvent is an event for a Pod that waits.
type podEvent struct {
	pod   *pods.Pod
	event events.Event
}

// notHelped says which field of a Pod keeps it waiting, by a class of the scheduler's summary.
func notHelped(class string) events.Event {
	field := "another reason"
	for _, f := range fields {
		if strings.Contains(class, f.word) {
			field = f.field
			break
		}
	}
	return events.Event{Reason: ReasonNotHelped, Message: "The machines for Pods like this one have enough capacity, and more machines do not help it. " +
		"kube-scheduler keeps it waiting for " + field + ": " + class + "."}
}

// fields are words of the scheduler's classes, and the fields of a Pod behind them.
var fields = []struct{ word, field string }{
	{"anti-affinity", "spec.affinity.podAntiAffinity, its own or that of Pods that run"},
	{"pod affinity", "spec.affinity.podAffinity: no Pod that it must be near runs in a domain with enough capacity"},
	{"topology spread", "spec.topologySpreadConstraints"},
	{"free ports", "hostPort in spec.containers.ports"},
	{"olume", "spec.volumes"},
	{"node affinity/selector", "spec.nodeSelector or spec.affinity.nodeAffinity"},
	{"untolerated taint", "spec.tolerations"},
}

// Report is the full set now.
func (w Watcher) Report(now time.Time) *pb.UnplacedPods {
	report, _ := w.unplaced(now)
	return report
}

func (w Watcher) unplaced(now time.Time) (out *pb.UnplacedPods, waiting []podEvent) {
	rows := map[string]*pb.UnplacedRow{}
	sums := map[string]map[string]*big.Int{}
	ready := map[string]readiness{} // computed once a row: each answer scans every machine
	nodes := w.Nodes()
	stuck := w.Pods.Unschedulable()
	var places map[string]int
	var spread *spreads
	full := 0
	kept := sync.OnceValue(w.keptFromHosts)
	if len(stuck) > 0 {
		places = w.places(now)
	}
	for _, p := range stuck {
		c := p.Unschedulable()
		if c == nil {
			continue
		}
		age := now.Sub(c.LastTransitionTime.Time)
		if age < unschedulableFor && (age < coveredFor || !current(c.Message, nodes)) {
			continue
		}
		q, id := w.Request(p)
		// A status that is satisfied says nothing of a request that the shard has not received yet. A shard that does not know the machines of a
		// provider buys only for Pods that are reported.
		missing := id != "" && w.Missing(id)
		if q == nil || id == "" || !w.Counted(p) || !missing && !w.Satisfied(id) {
			continue
		}
		if _, asked := ready[id]; !asked {
			since, ok := w.Ready(id)
			ready[id] = readiness{since, ok}
		}
		if !ready[id].ok || age < unschedulableFor && now.Sub(ready[id].since) < coveredFor {
			continue
		}
		lacking, other := short(c.Message, q.Spec, bounds{domains: p.Domains, hosts: p.Hosts, confined: w.Confined(id),
			kept: strings.Contains(c.Message, theirs) && kept()})
		if !lacking && !missing {
			if other != "" {
				waiting = append(waiting, podEvent{p, notHelped(other)})
			}
			continue
		}
		if places[p.Workload] > 0 {
			places[p.Workload]--
			continue
		}
		r := rows[id]
		if r == nil {
			if len(rows) >= rowsMax {
				continue
			}
			r = &pb.UnplacedRow{RowId: id}
			rows[id], sums[id] = r, map[string]*big.Int{}
			if len(q.Spec.Spread) > 0 && full < fullRowsMax {
				if full++; spread == nil {
					spread = w.spreads()
				}
				r.FullDomains = spread.full(p, q.Spec)
			}
		}
		r.Pods++
		if age >= unschedulableFor && !missing {
			waiting = append(waiting, podEvent{p, events.Event{Reason: ReasonFragmented, Message: fragmentedMessage}})
		}
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
			r.Resources[name] = quantity.FormatBig(name, milli)
		}
		out.Rows = append(out.Rows, r)
	}
	out.UnboundRowIds, out.UnboundStated = w.unbound()
	return out, waiting
}

// places counts by workload the Pods that are about to leave nodes which take the next ones, or have just left them.
func (w Watcher) places(now time.Time) map[string]int {
	out := map[string]int{}
	for _, p := range w.Pods.Ending() {
		if left := p.DeletionTimestamp.Sub(now); p.Workload != "" && left <= placeSoon && left > -placeLate && w.TakesPods(p.Node) {
			out[p.Workload]++
		}
	}
	for _, e := range w.Pods.Ended() {
		if w.TakesPods(e.Node) {
			out[e.Workload]++
		}
	}
	return out
}

// unbound lists the rows that request more than Pods on nodes: their machines may be empty because what they are for has not come.
func (w Watcher) unbound() (ids []string, all bool) {
	rows := map[string]bool{}
	for _, p := range w.Pods.Unbound() {
		if q, id := w.Request(p); q != nil && id != "" {
			rows[id] = true
		}
	}
	w.Ahead(func(row string) { rows[row] = true })
	if len(rows) > rowsMax {
		return nil, false
	}
	return slices.Sorted(maps.Keys(rows)), true
}

type readiness struct {
	since time.Time
	ok    bool
}

// current reports whether the scheduler's last attempt saw every node that there is now, Ready: then its word counts at once.
func current(message string, nodes int) bool {
	if nodes == 0 {
		return strings.HasPrefix(message, "no nodes available")
	}
	of, _, ok := strings.Cut(strings.TrimPrefix(message, "0/"), " nodes are available: ")
	n, err := strconv.Atoi(of)
	return ok && err == nil && n == nodes && !strings.Contains(message, "node.kubernetes.io/not-ready") && !strings.Contains(message, "uninitialized")
}

// classes are one entry per class of the scheduler's summary, such as "3 Insufficient cpu".
var classes = regexp.MustCompile(`(\d+) ([^,.]+)`)

// bounds are what else keeps a Pod from nodes.
type bounds struct {
	domains, hosts bool // its required anti-affinity
	confined       bool // its row says in which domains it may be
	kept           bool // that of Pods that run keeps others from hosts alone
}

// theirs is how kube-scheduler names the anti-affinity of Pods that run.
const theirs = "didn't satisfy existing pods anti-affinity rules"

// keptFromHosts reports whether no Pod that runs keeps others from whole domains.
func (w Watcher) keptFromHosts() bool {
	alone := true
	w.Pods.All(func(p *pods.Pod) bool {
		alone = p.Node == "" || !p.Domains
		return alone
	})
	return alone
}

// short reports whether a Pod lacks resources on some node and fails for no other reason anywhere: each class of the summary
// is a shortage, or excludes the node for this Pod altogether. A node that has attached all the volumes that it can, and a domain of a
// hard spread that must not have more of these Pods, are shortages: one more machine, in another domain, has room. A Pod with a limit
// per host may lack a host, and so does one that keeps away from the hosts of others, or that these keep from theirs. Where its row says in which
// domains the Pod may be, one more machine is in one of them. Otherwise other is a class that no machine solves, if there is one.
func short(message string, s *request.Spec, of bounds) (lacking bool, other string) {
	_, summary, ok := strings.Cut(message, " nodes are available: ")
	if !ok {
		return false, ""
	}
	summary, _, _ = strings.Cut(summary, " preemption: ")
	for _, m := range classes.FindAllStringSubmatch(summary, -1) {
		class := strings.TrimSpace(m[2])
		switch {
		case strings.HasPrefix(class, "Insufficient "), class == "Too many pods":
			lacking = true
		case s.MaxPerHost > 0 && lacksHost(class, of.domains), of.hosts && !of.domains && strings.HasSuffix(class, "didn't match pod anti-affinity rules"),
			of.kept && strings.HasSuffix(class, theirs), strings.Contains(class, "exceed max volume count"):
			lacking = true
		case len(s.Spread) > 0 && strings.HasSuffix(class, "didn't match pod topology spread constraints"):
			lacking = true // a domain with few of its peers has no room
		case strings.Contains(class, "anti-affinity rules") && slices.ContainsFunc(s.Spread, func(t v1alpha1.TopologySpread) bool { return t.MinDomains == math.MaxInt32 }):
			lacking = true // a domain without its peers has no room
		case strings.Contains(class, "volume node affinity conflict"), strings.Contains(class, "didn't match PersistentVolume's node affinity"),
			strings.Contains(class, "had no available volume zone"), strings.Contains(class, "spread constraints (missing required label)"),
			strings.Contains(class, "didn't match Pod's node affinity/selector"), strings.Contains(class, "untolerated taint"),
			of.confined && strings.HasSuffix(class, "didn't match pod affinity rules"), strings.Contains(class, "were unschedulable"), strings.Contains(class, "didn't match the requested node name"):
			other = class // not a node for this Pod
		default:
			return false, class
		}
	}
	return lacking, other
}

// lacksHost reports whether a class says that a node holds as many of these Pods as it may: one more host has room. Of a Pod that keeps
// away from whole domains as well, the class may mean those, where one more host has none.
func lacksHost(class string, domains bool) bool {
	return !domains && (strings.Contains(class, "pods anti-affinity rules") || strings.Contains(class, "pod anti-affinity rules")) ||
		strings.Contains(class, "didn't have free ports") || strings.HasSuffix(class, "didn't match pod topology spread constraints")
}
