package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/remedy"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
)

// fleetChecks looks at the management plane from outside in: ways there, coordinator, shards, providers.
func fleetChecks(ctx context.Context, a *app.App, r *report) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	direct := f.Direct()
	runs := skew.Versions{}
	var recorded known
	if !direct {
		replicas, err := f.Replicas()
		if err != nil {
			return err
		}
		if coordinator(ctx, a, f, r, replicas, runs) {
			recorded = plane(ctx, f, r, runs)
		}
	}
	shards, err := f.Shards(ctx)
	if err != nil {
		r.fail("shards", "Use --shard host:port to check one shard without the coordinator", "they cannot be listed: %s", shortReason(err))
		return nil
	}
	providers := map[string]string{} // name by address
	for _, s := range shards {
		if !endpoint(ctx, a, r, "shard "+s.Label(), s.Address, identity.Shard) {
			continue
		}
		st := shard(ctx, a, f, r, s)
		if st == nil {
			continue
		}
		recorded.identity(r, s, st)
		runs.Add("shard "+st.GetShardId(), st.GetVersion())
		for _, p := range st.GetProviders() {
			providers[p.GetAddress()] = cmp.Or(p.GetName(), p.GetAddress())
		}
	}
	for _, address := range slices.Sorted(maps.Keys(providers)) {
		about := "provider " + providers[address]
		if endpoint(ctx, a, r, about, address, "") {
			provider(ctx, a, f, r, about, address)
		}
	}
	claims(ctx, f, r, shards, runs)
	versions(r, runs)
	return nil
}

func coordinator(ctx context.Context, a *app.App, f *fleet.Fleet, r *report, replicas []fleet.Coordinator, runs skew.Versions) (led bool) {
	leaders, answered := map[string]bool{}, 0
	hashes := map[string]string{}
	for _, c := range replicas {
		about := "coordinator " + c.Address
		if !endpoint(ctx, a, r, about, c.Address, identity.Coordinator) {
			continue
		}
		bounded, cancel := f.Deadline(ctx)
		got, err := c.Admin.GetCoordinatorStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		cancel()
		if err != nil {
			r.silent(about, err)
			continue
		}
		answered++
		clock(a, r, about, got.Header())
		s := got.Msg
		runs.Add(about, s.GetBuild())
		leaders[s.GetLeader().GetLeaderId()] = true
		at := fmt.Sprintf("%d", s.GetAppliedIndex())
		if other, seen := hashes[at]; seen && other != s.GetStateHash() && s.GetStateHash() != "" {
			r.fail(about, "Stop this replica, remove it with `bigfleet raft remove-peer` and let it join with an empty disk", "at index %s its state differs from another replica's", at)
		}
		hashes[at] = s.GetStateHash()
		if age := a.Now().Sub(time.Unix(0, s.GetSnapshotAtUnixNanos())); s.GetSnapshotAtUnixNanos() != 0 && age > 24*time.Hour {
			r.warn(about, "`bigfleet snapshot save` makes one now", "its newest snapshot is %s old", output.Span(age))
		}
	}
	switch {
	case answered == 0:
		r.fail("coordinator", "Shards continue without it; start it to rebalance and to list shards", "no replica answers")
	case len(leaders) != 1 || leaders[""]:
		r.fail("coordinator", "An election takes a second; if it lasts, bring back a majority of the replicas", "there is no leader that all replicas agree on")
	default:
		r.ok("coordinator", "%d of %d replicas answer and agree on a leader", answered, len(replicas))
		return true
	}
	return false
}

// clock compares the server's clock with one's own.
func clock(a *app.App, r *report, about string, h http.Header) {
	theirs, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return // a peer that sends no date cannot be compared
	}
	if skew := a.Now().Sub(theirs); skew.Abs() > skewMax {
		r.fail(about, "Run a time synchronization service (chrony, systemd-timesyncd) on both machines", "its clock differs by %s from this machine's", skew.Round(time.Second))
	}
}

// shard looks at one shard and returns what it says of itself, nil if it does not.
func shard(ctx context.Context, a *app.App, f *fleet.Fleet, r *report, s fleet.Shard) *bigfleetv1alpha1.GetStatusResponse {
	about := "shard " + s.Label()
	bounded, cancel := f.Deadline(ctx)
	defer cancel()
	got, err := s.Read.GetStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
	if err != nil {
		r.silent(about, err)
		return nil
	}
	clock(a, r, about, got.Header())
	st := got.Msg
	switch {
	case st.GetSuperseded():
		r.fail(about, "Stop this process: a newer process with the same id is running. If it is the one that should run, restart it: it takes a newer epoch", "it is fenced: a provider has seen a newer epoch of this shard, so this process has stopped acting")
	case !st.GetReady():
		r.fail(about, "It becomes ready when every provider has been listed once", "it is not ready: %v", st.GetNotReadyReasons())
	default:
		r.ok(about, "ready, cycle %d, %s known", st.GetCycle(), output.Count(int(total(st.GetMachinesByState())), "machine"))
	}
	if st.GetDryRun() {
		r.warn(about, "`bigfleet dry-run off --reason …` enables actions", "dry run: it decides but does not act")
	}
	for _, p := range st.GetPauses() {
		if age := a.Now().Sub(time.Unix(0, p.GetCreatedAtUnixNanos())); age > pauseOld && p.GetExpiresAtUnixNanos() == 0 {
			r.warn(about, "`bigfleet resume "+p.GetPauseId()+" --reason …`", "pause %s (%s) is %s old and does not expire: was it forgotten?", p.GetPauseId(), p.GetReason(), output.Span(age))
		}
	}
	if st.GetSilentClusters() > 0 {
		r.warn(about, "`bigfleet get clusters` names them; check their operators", "%d %s silent", st.GetSilentClusters(), output.Are(int(st.GetSilentClusters()), "cluster"))
	}
	for _, w := range st.GetWarnings() {
		if strings.HasPrefix(w, "plaintext: ") {
			continue // said of its address already
		}
		r.warn(about, remedy.Of(w), "%s", w)
	}
	for _, p := range st.GetProviders() {
		if p.GetBreaker() != "closed" && p.GetBreaker() != "" {
			r.fail(about, "Check the provider's log; the shard retries automatically", "provider %s has failed often; its circuit breaker is %s", p.GetName(), p.GetBreaker())
		}
		if p.GetInventoryAgeSeconds() > inventoryOK {
			r.fail(about, "Check the provider; the shard reclaims nothing while the inventory is stale", "the inventory of provider %s is %.0f s old", p.GetName(), p.GetInventoryAgeSeconds())
		}
		if p.GetRemovalsHeld() > 0 {
			r.warn(about, "If they are really gone, wait. Otherwise find out why the provider lists fewer machines", "provider %s stopped listing %d machines; they are kept for now", p.GetName(), p.GetRemovalsHeld())
		}
	}
	return st
}

func total(m map[string]int32) (n int32) {
	for _, v := range m {
		n += v
	}
	return n
}

// hosts are the states of machines that are no slots. A partition that gives two shards one machine shows in its hosts, and a
// large fleet has many times as many slots.
var hosts = []bigfleetv1alpha1.MachineState{
	bigfleetv1alpha1.MachineState_MACHINE_STATE_CREATING, bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE,
	bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING, bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED,
	bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING, bigfleetv1alpha1.MachineState_MACHINE_STATE_DELETING,
	bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED,
}

// claims finds machines and clusters that two shards hold, and looks at what each cluster asks for.
func claims(ctx context.Context, f *fleet.Fleet, r *report, shards []fleet.Shard, runs skew.Versions) {
	clusters := map[string]string{}
	machines := map[string]string{}
	for _, s := range shards {
		// What fails here was said already by shard.
		_ = pages(ctx, f, func(ctx context.Context, token string) (string, error) {
			got, err := s.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{PageToken: token}))
			if err != nil {
				return "", err
			}
			for _, c := range got.Msg.GetClusters() {
				if !c.GetConnected() {
					continue
				}
				demand(r, c)
				runs.Add("operator of "+c.GetClusterId(), c.GetOperatorVersion())
				if other := clusters[c.GetClusterId()]; other != "" {
					r.fail("cluster "+c.GetClusterId(), "Configure its operator to dial one shard; `bigfleet clusters bind` says which", "shards %s and %s both have sessions of it", other, s.Label())
				}
				clusters[c.GetClusterId()] = s.Label()
			}
			return got.Msg.GetNextPageToken(), nil
		})
		if len(shards) == 1 {
			continue // no other shard could own its machines
		}
		_ = pages(ctx, f, func(ctx context.Context, token string) (string, error) {
			got, err := s.Read.ListMachines(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMachinesRequest{
				PageSize: 5000, PageToken: token, States: hosts,
			}))
			if err != nil {
				return "", err
			}
			for _, m := range got.Msg.GetMachines() {
				if slices.Contains(m.GetFlags(), bigfleetv1alpha1.MachineFlag_MACHINE_FLAG_FOREIGN) {
					continue
				}
				id := m.GetMachine().GetId()
				if other := machines[id]; other != "" {
					r.fail("machine "+id, "`bigfleet get domains` shows its owner", "shards %s and %s both claim it", other, s.Label())
				}
				machines[id] = s.Label()
			}
			return got.Msg.GetNextPageToken(), nil
		})
	}
}

// pages asks for page after page.
func pages(ctx context.Context, f *fleet.Fleet, page func(ctx context.Context, token string) (next string, err error)) error {
	for token := ""; ; {
		bounded, cancel := f.Deadline(ctx)
		next, err := page(bounded, token)
		cancel()
		if err != nil || next == "" {
			return err
		}
		token = next
	}
}

// shortReason is what failed and why; the finding has its own remedy.
func shortReason(err error) string {
	var e *exit.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}
