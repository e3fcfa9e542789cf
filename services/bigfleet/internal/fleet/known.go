package fleet

import (
	"context"
	"maps"
	"slices"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Known refuses the name of a cluster, provider, zone, type or machine that no shard has, and says which name is nearest. It
// refuses nothing while a shard does not answer: what that one has is not known.
func Known(ctx context.Context, f *Fleet, shards []Shard, what, name string) error {
	answers, failed := Each(ctx, f, shards, "looking for "+what+" "+name, func(ctx context.Context, s Shard) (map[string]bool, error) {
		return namesOf(ctx, s, what)
	})
	if failed != nil {
		return nil
	}
	all := map[string]bool{}
	for _, names := range answers {
		maps.Copy(all, *names)
	}
	if all[name] {
		return nil
	}
	out := &exit.Error{Code: exit.NotFound, Message: "no shard has a " + what + " " + name, Hint: "`bigfleet get " + listOf[what] + "` lists them"}
	if near := Nearest(name, slices.Sorted(maps.Keys(all))); near != "" {
		out.Hint = "Did you mean " + near + "? " + out.Hint
	}
	return out
}

// Home is which of the shards serve a cluster: the place of each in shards. It is empty if none does.
func Home(ctx context.Context, f *Fleet, shards []Shard, cluster string) ([]int, error) {
	answers, err := Each(ctx, f, shards, "looking for cluster "+cluster, func(ctx context.Context, s Shard) (bool, error) {
		got, err := s.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{ClusterId: cluster}))
		return err == nil && slices.ContainsFunc(got.Msg.GetClusters(), func(c *bigfleetv1alpha1.ClusterView) bool { return c.GetClusterId() == cluster }), err
	})
	if err != nil {
		return nil, err
	}
	var home []int
	for i, serves := range answers {
		if *serves {
			home = append(home, i)
		}
	}
	return home, nil
}

var listOf = map[string]string{"cluster": "clusters", "provider": "providers", "zone": "machines", "type": "machines", "machine": "machines"}

func namesOf(ctx context.Context, s Shard, what string) (map[string]bool, error) {
	names := map[string]bool{}
	switch what {
	case "cluster":
		req := &bigfleetv1alpha1.ListClustersRequest{}
		for {
			got, err := s.Read.ListClusters(ctx, connect.NewRequest(req))
			if err != nil {
				return nil, err
			}
			for _, c := range got.Msg.GetClusters() {
				names[c.GetClusterId()] = true
			}
			if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
				return names, nil
			}
		}
	case "provider":
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		for _, p := range got.Msg.GetProviders() {
			names[p.GetName()] = true
		}
		return names, nil
	}
	req := &bigfleetv1alpha1.ListMachinesRequest{PageSize: 5000}
	for {
		got, err := s.Read.ListMachines(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, m := range got.Msg.GetMachines() {
			names[map[string]string{"zone": m.GetMachine().GetZone(), "type": m.GetMachine().GetInstanceType(), "machine": m.GetMachine().GetId()}[what]] = true
		}
		if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
			return names, nil
		}
	}
}

// Nearest is the name that differs least from what was written, in at most two letters; "" when none does.
func Nearest(written string, names []string) (near string) {
	best := 3
	for _, n := range names {
		if d := distance(written, n); d < best {
			near, best = n, d
		}
	}
	return near
}

// distance is how many letters have to be put in, taken out or changed to make one word of another.
func distance(from, to string) int {
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(from) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(to) {
			change := diagonal
			if from[i] != to[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
