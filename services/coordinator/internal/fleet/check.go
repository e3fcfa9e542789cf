package fleet

import (
	"fmt"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Check runs every rule of COORD-3.2 and returns the first violation. A state built by Apply passes; one that was read
// from a file may not.
func (s *State) Check() error {
	for _, check := range []func() error{s.checkShards, s.checkClusters, s.checkDomains, s.checkProviders, s.checkQuotas, s.checkSupply} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) named(what, id string) error {
	if !Live(s.shards.get(id)) {
		return fmt.Errorf("%s names shard %q, which is not registered", what, id)
	}
	return nil
}

func (s *State) checkShards() error {
	for id, sh := range s.shards.all() {
		if id != sh.GetShardId() || !validID(id) {
			return fmt.Errorf("shard row %q holds shard %q", id, sh.GetShardId())
		}
		if Live(sh) && sh.GetProvider() != "" && s.providers.get(sh.GetProvider()) == nil {
			return fmt.Errorf("shard %q names provider %q, which has no row", id, sh.GetProvider())
		}
	}
	return nil
}

func (s *State) checkClusters() error {
	for id, c := range s.clusters.all() {
		if id != c.GetClusterId() || !ValidCluster(id) {
			return fmt.Errorf("cluster row %q holds cluster %q", id, c.GetClusterId())
		}
		// Shards that let go long ago may be gone altogether: machines still carry their names.
		for _, shard := range involved(c)[:len(involved(c))-len(c.GetReleased())] {
			if err := s.named("cluster "+id, shard); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) checkDomains() error {
	for key, d := range s.domains.all() {
		what := fmt.Sprintf("domain %s=%s", d.GetKey(), d.GetValue())
		if key != domainKey(d) {
			return fmt.Errorf("%s is stored under another key", what)
		}
		if d.GetOwner() == "" && d.GetNext() == "" || InHandover(d) && len(d.GetReleasers()) == 0 || !InHandover(d) && len(d.GetReleasers()) > 0 {
			return fmt.Errorf("%s has no owner, or a handover that waits for no shard", what)
		}
		for _, shard := range []string{d.GetOwner(), d.GetNext()} {
			if shard == "" {
				continue
			}
			if err := s.named(what, shard); err != nil {
				return err
			}
		}
		for _, r := range d.GetReleasers() {
			if err := s.named(what, r.GetShardId()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) checkProviders() error {
	for name, p := range s.providers.all() {
		if name != p.GetName() || !validProvider(name) {
			return fmt.Errorf("provider row %q holds provider %q", name, p.GetName())
		}
		for _, shard := range []string{p.GetDefaultOwner(), p.GetNextDefaultOwner()} {
			if shard == "" {
				continue
			}
			if err := s.named("provider "+name, shard); err != nil {
				return err
			}
			if s.shards.get(shard).GetProvider() != name {
				return fmt.Errorf("provider %q is owned by default by shard %q of provider %q", name, shard, s.shards.get(shard).GetProvider())
			}
		}
	}
	return nil
}

func (s *State) checkQuotas() error {
	for _, q := range s.quotas.all() {
		what := fmt.Sprintf("quota %s/%s", q.GetProvider(), q.GetRegion())
		if s.providers.get(q.GetProvider()) == nil {
			return fmt.Errorf("%s names a provider that has no row", what)
		}
		total := transitUnits(q)
		for _, sl := range q.GetSlices() {
			if err := s.named(what, sl.GetShardId()); err != nil {
				return err
			}
			if sl.GetTarget() < 0 || sl.GetGranted() < 0 {
				return fmt.Errorf("%s has a negative slice for shard %q", what, sl.GetShardId())
			}
			total += int64(sl.GetTarget())
		}
		if total > int64(q.GetDeclared()) {
			return fmt.Errorf("%s assigns %d units, but only %d are declared", what, total, q.GetDeclared())
		}
	}
	return nil
}

func (s *State) checkSupply() error {
	for _, e := range s.exceptions.all() {
		if err := s.named("the exception of machine "+e.GetMachineId(), e.GetOwner()); err != nil {
			return err
		}
	}
	for id, m := range s.moves.all() {
		if id != m.GetMoveId() {
			return fmt.Errorf("move row %q holds move %q", id, m.GetMoveId())
		}
		if !Open(m) {
			continue
		}
		if err := s.checkMove(m); err != nil {
			return err
		}
	}
	return nil
}

// checkMove: an open move names live shards, except the side whose removal the rest of the move is about.
func (s *State) checkMove(m *pb.Move) error {
	what := "move " + m.GetMoveId()
	from, to := s.named(what, m.GetFrom()), s.named(what, m.GetTo())
	if from != nil && to != nil {
		return from
	}
	return nil
}
