package planner_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ref finds a Need by its alias in the last plan.
func (s *stage) ref(t *testing.T, alias string) engine.Ref {
	for bi, b := range s.last.Blocks {
		for i := range b.Needs {
			if ref := (engine.Ref{Block: int32(bi), Row: int32(i)}); s.name(s.last, ref) == alias {
				return ref
			}
		}
	}
	t.Fatalf("no need %s in the last plan", alias)
	return engine.NoNeed
}

// explain prints what ExplainNeed answers about the last plan, and what Suggest would change.
func (s *stage) explain(t *testing.T, alias string) []string {
	ref := s.ref(t, alias)
	e := explain.ExplainNeed(s.w, s.policy, s.last, ref)
	out := []string{e.Sentence}
	for _, f := range e.Funnel {
		line := fmt.Sprintf("  %s: %d", f.Name, f.Machines)
		for _, l := range f.Lost {
			line += fmt.Sprintf("; lost %d: %s", l.Machines, l.Text)
		}
		out = append(out, line)
	}
	for _, x := range e.Withheld {
		out = append(out, fmt.Sprintf("  withheld: %d for %s", x.Machines, x.Reason))
	}
	if e.Nearest != nil {
		out = append(out, fmt.Sprintf("  nearest: %s, %s", e.Nearest.Machine, e.Nearest.Text))
	}
	for _, h := range e.Holders {
		out = append(out, fmt.Sprintf("  held by %s/%s, priority %d: %d, %s", h.Cluster, h.Key.Group, h.Priority, h.Machines, h.Why))
	}
	for _, d := range e.Domains {
		line := fmt.Sprintf("  domain %s: %d machines, %d per mille", d.Domain, d.Machines, d.PerMille)
		if d.Chosen {
			line += ", chosen"
		}
		out = append(out, line)
	}
	for _, c := range e.Candidates {
		out = append(out, fmt.Sprintf("  %s %s: price %s, cost %s, %s", c.State, c.Machine, dollars(c.Price), dollars(c.Cost), c.Why))
	}
	if e.Verdict.Status == engine.Short {
		say := "  nothing helps"
		if x := explain.Suggest(s.input(), s.last, ref); x != nil {
			say = "  would help: " + x.Say
		}
		out = append(out, say)
	}
	return out
}

// why prints what ExplainMachine answers.
func (s *stage) why(id string) []string {
	e := explain.ExplainMachine(s.w, s.policy, s.last, s.index(id), "")
	out := []string{id + ": " + e.Sentence}
	if e.Change != "" {
		out = append(out, "  "+e.Change)
	}
	return out
}

func poolOf(v string) explain.Pool {
	kind, zone, _ := strings.Cut(v, "@")
	return explain.Pool{InstanceType: kind, Zone: zone}
}

func millionths(v string) int64 {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		panic(err)
	}
	return int64(f * 1_000_000)
}

// edits reads the flags of `bigfleet plan`.
func (s *stage) edits(words []string) (edits []explain.Edit, settle bool) {
	for _, w := range words {
		flag, v, _ := strings.Cut(w, "=")
		left, right, _ := strings.Cut(v, "=")
		switch flag {
		case "--settle":
			settle = true
		case "--scale":
			edits = append(edits, explain.ScaleRows{Cluster: left, PerMillion: millionths(right)})
		case "--price":
			edits = append(edits, explain.ScalePrice{Pool: poolOf(left), PerMillion: millionths(right)})
		case "--stock-out":
			edits = append(edits, explain.StockOut{Pool: poolOf(v)})
		case "--restock":
			edits = append(edits, explain.Restock{Pool: poolOf(v)})
		case "--drain-zone":
			edits = append(edits, explain.DrainZone{Zone: v})
		case "--drop-cluster":
			edits = append(edits, explain.DropCluster{Cluster: v})
		case "--remove-machine":
			edits = append(edits, explain.RemoveMachine{ID: v})
		case "--remove-row":
			cluster, row, _ := strings.Cut(v, ":")
			edits = append(edits, explain.RemoveRows{Cluster: cluster, Name: row})
		case "--lift-holds":
			edits = append(edits, explain.LiftHolds{Cluster: v})
		case "--machine": // ID:STATE, with what another machine has: ID:STATE:LIKE
			f := strings.Split(v, ":")
			m := s.w.Inventory.Machine(s.index(f[2]))
			m.ID, m.State = f[0], stateWords[f[1]]
			edits = append(edits, explain.PutMachine{Machine: m})
		case "--node": // ID:ready or ID:lost
			id, word, _ := strings.Cut(v, ":")
			edits = append(edits, explain.SetNode{ID: id, Ready: word == "ready"})
		default:
			panic("what if: " + w)
		}
	}
	return edits, settle
}

// whatIf prints what would be done, whose verdict would be another, and what it would cost.
func (s *stage) whatIf(words []string) []string {
	edits, settle := s.edits(words)
	s.w.Inventory.Advance(s.now)
	a := explain.WhatIf(s.input(), edits, nil, settle)
	var out []string
	for _, w := range a.Warnings {
		out = append(out, "warning: "+w)
	}
	for _, v := range a.Actions {
		line := fmt.Sprintf("%s %s", v.Kind, v.Machine)
		if v.Cluster != "" {
			line += ", " + v.Cluster
		}
		out = append(out, fmt.Sprintf("%s (%s)", line, v.Cause))
	}
	for _, c := range a.Changes {
		word := func(r *engine.Result, ref engine.Ref) string {
			if ref.None() {
				return "not there"
			}
			v := r.Blocks[ref.Block].Verdicts[ref.Row]
			return strings.TrimSpace(v.Status.String() + " " + v.Detail.String())
		}
		out = append(out, fmt.Sprintf("%s/%s: %s, then %s", c.Cluster, c.Key.Group, word(a.Base, c.Before), word(a.Final, c.After)))
	}
	end := fmt.Sprintf("%s an hour, then %s", dollars(a.CostNow), dollars(a.CostThen))
	if settle {
		end += fmt.Sprintf("; %d rounds, settled %v", a.Rounds, a.Settled)
	}
	return append(out, end)
}

// joined says that a Node of the machine's cluster has joined (ENG-17.6).
func (s *stage) joined(id string) {
	if i := s.index(id); s.w.Inventory.State(i) == inventory.Configured {
		s.join.Ready(s.w.Inventory.Cluster(i))
	}
}
