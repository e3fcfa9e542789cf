package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

const (
	hitsDefault    = 20
	clustersPage   = 5000
	searchTimeout  = 5 * time.Second
	clusterTimeout = 2 * time.Second
	shardTimeout   = 2 * time.Second
)

// finder collects hits, those whose name begins with the part first.
type finder struct {
	part  string
	limit int
	first []*pb.SearchHit
	rest  []*pb.SearchHit
	more  bool
}

func (f *finder) in(name string) bool { return strings.Contains(strings.ToLower(name), f.part) }

func (f *finder) add(h *pb.SearchHit) {
	name := strings.ToLower(h.GetName())
	switch {
	case strings.HasPrefix(name, f.part) && len(f.first) < f.limit:
		f.first = append(f.first, h)
	case len(f.rest) < f.limit:
		f.rest = append(f.rest, h)
	default:
		f.more = true
	}
}

func (f *finder) addMachine(shard string, m *pb.MachineView) {
	x := m.GetMachine()
	hit := &pb.SearchHit{Kind: "machine", Name: x.GetId(), ShardId: shard, ClusterId: x.GetCluster(), Target: x.GetId(), About: x.GetInstanceType() + " in " + x.GetZone()}
	switch {
	case strings.Contains(strings.ToLower(x.GetId()), f.part):
	case strings.Contains(strings.ToLower(m.GetNodeName()), f.part):
		hit.Kind, hit.Name, hit.About = "node", m.GetNodeName(), "node of "+x.GetId()
	default: // a shard that does not know name_part
		return
	}
	f.add(hit)
}

// searched is what a shard answered to a search.
type searched struct {
	clusters *pb.ListClustersResponse
	machines *pb.ListMachinesResponse
	err      error
}

func (f *finder) ask(ctx context.Context, shard *sources.Shard) (a searched) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	if a.clusters, a.err = asked(ctx, shard, &pb.ListClustersRequest{PageSize: clustersPage}, shard.Read.ListClusters); a.err != nil {
		return a
	}
	a.machines, a.err = asked(ctx, shard, &pb.ListMachinesRequest{NamePart: f.part, PageSize: int32(f.limit)}, shard.Read.ListMachines) //nolint:gosec // at most 100
	return a
}

// addAll adds what a shard has, and what the console knows of it without a question.
func (f *finder) addAll(shard *sources.Shard, a *searched) {
	st := shard.Snapshot()
	if f.in(shard.ID) {
		f.add(&pb.SearchHit{Kind: "shard", Name: shard.ID, ShardId: shard.ID})
	}
	for _, p := range st.Status.GetProviders() {
		if f.in(p.GetName()) {
			f.add(&pb.SearchHit{Kind: "provider", Name: p.GetName(), ShardId: shard.ID, About: "provider of " + shard.ID})
		}
	}
	for _, x := range a.clusters.GetClusters() {
		if f.in(x.GetClusterId()) {
			f.add(&pb.SearchHit{Kind: "cluster", Name: x.GetClusterId(), ShardId: shard.ID, ClusterId: x.GetClusterId(), About: "cluster of " + shard.ID})
		}
	}
	for _, row := range needsOf(st) {
		n := row.GetNeed()
		if name := n.GetClusterId() + "/" + n.GetNeed().GetRowId(); f.in(name) {
			f.add(&pb.SearchHit{Kind: "need", Name: name, ShardId: shard.ID, ClusterId: n.GetClusterId(), Target: n.GetNeed().GetRowId(), About: n.GetDetailText()})
		}
	}
	f.more = f.more || a.machines.GetNextPageToken() != ""
	for _, m := range a.machines.GetMachines() {
		f.addMachine(shard.ID, m)
	}
}

// Search finds things by a part of their name.
func (c *Console) Search(ctx context.Context, req *connect.Request[pb.SearchRequest]) (*connect.Response[pb.SearchResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	f := &finder{part: strings.ToLower(strings.TrimSpace(req.Msg.GetQuery())), limit: int(req.Msg.GetLimit())}
	if f.limit == 0 {
		f.limit = hitsDefault
	}
	defer c.Sources.Watch()()
	out := &pb.SearchResponse{}
	shards := c.Sources.Shards()
	answers := make([]searched, len(shards))
	var asking sync.WaitGroup
	for i, shard := range shards { // a shard that is slow holds up no other
		asking.Go(func() { answers[i] = f.ask(ctx, shard) })
	}
	asking.Wait()
	for i, shard := range shards {
		f.addAll(shard, &answers[i])
		if err := answers[i].err; err != nil {
			out.Missing = append(out.Missing, shard.ID+": "+passed(err).Error())
		}
	}
	c.findObjects(ctx, f, out)
	c.findGone(ctx, f)
	hits := append(f.first, f.rest...)
	out.Hits, out.More = hits[:min(len(hits), f.limit)], f.more || len(hits) > f.limit
	return connect.NewResponse(out), nil
}

// asked is what a shard says, or said to the same question of a search a moment ago.
func asked[Req, Res any, PReq interface {
	*Req
	proto.Message
}, PRes interface {
	*Res
	proto.Message
}](ctx context.Context, shard *sources.Shard, q PReq, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (PRes, error) {
	got, _, err := sources.Shared(ctx, shard, sources.Rows, fmt.Sprintf("search %T", q), q, func() (PRes, error) {
		got, err := call(ctx, connect.NewRequest((*Req)(q)))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	return got, err
}

// findObjects looks into the clusters for Pods and workloads.
func (c *Console) findObjects(ctx context.Context, f *finder, out *pb.SearchResponse) {
	if c.Clusters == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	found, err := c.Clusters.Find(ctx, f.part, f.limit)
	if err != nil {
		out.Missing = append(out.Missing, "clusters: "+err.Error())
	}
	for _, o := range found {
		f.add(&pb.SearchHit{Kind: o.Kind, Name: o.Namespace + "/" + o.Name, ClusterId: o.Cluster, About: "in " + o.Cluster})
	}
}

// findGone asks for a machine or node of exactly this name that is no more: its records may still be there.
func (c *Console) findGone(ctx context.Context, f *finder) {
	if len(f.first)+len(f.rest) > 0 {
		return
	}
	for _, shard := range c.Sources.Shards() {
		for _, q := range []*pb.GetMachineHistoryRequest{
			{Subject: &pb.GetMachineHistoryRequest_MachineId{MachineId: f.part}, PageSize: 1},
			{Subject: &pb.GetMachineHistoryRequest_NodeName{NodeName: f.part}, PageSize: 1},
		} {
			got, err := shard.Read.GetMachineHistory(ctx, connect.NewRequest(q))
			if err != nil || len(got.Msg.GetRecords()) == 0 {
				continue
			}
			r := got.Msg.GetRecords()[0]
			hit := &pb.SearchHit{Kind: "machine", Name: r.GetMachineId(), Target: r.GetMachineId(), ShardId: shard.ID, ClusterId: r.GetClusterId(), About: "gone; its records are there"}
			if !slices.ContainsFunc(f.first, func(h *pb.SearchHit) bool { return h.GetName() == hit.GetName() }) {
				f.add(hit)
			}
		}
	}
}
