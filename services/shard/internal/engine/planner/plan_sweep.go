package planner

// Rows come and go with profiles that name ever new values. What is remembered of requirements that no row has any more is
// swept away when there is as much of it as of the others (ENG-21.11).

// sweep forgets the matchers that no Need at work uses, once they are half of all, of the next so many. Only the Needs of clusters keep
// the id of a matcher from plan to plan; topologies, which keep counts for some, begin again.
func (p *planning) sweep(most int) {
	if !p.cat.SweepDue() {
		return
	}
	used := make([]bool, len(p.cat.ByID))
	for _, cl := range p.clusters.states {
		for i := range cl.needs {
			used[cl.needs[i].matcher] = true
		}
	}
	p.cat.Sweep(used, most)
	p.tops.list = nil
}
