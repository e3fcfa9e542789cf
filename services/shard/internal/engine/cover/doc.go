// Package cover finds the cheapest free machines for what a Need lacks: the cover rule (ENG-13.1 to 13.7).
//
// A Search is asked for a residual, a unit and a pool, and answers with groups of machines and how many of each to take. Groups are cut by supply
// and effective cost (ENG-13.1), so a count says it all: the machines are always those with the smallest ids.
//
// An Index is what a Need can choose from, sorted by cost. Indexes keeps one for each matcher, projection and interruption bucket from plan to
// plan (ENG-21); a DomainIndex is made for one domain and one question. FreePool and Domains say what the plan at work has left of each class, in all
// and by domain. Taking a machine is for the caller to do, with FreePool.Take.
//
// The package knows classes and vectors. It knows no Need, no cluster and nothing else of a plan, so it can be read and tested alone. Nothing here
// allocates once its buffers have grown, and inner loops call no interface. It is not safe for concurrent use.
//
// Start at Search.Run. choice.go is ENG-13.2 to 13.4, trim.go is ENG-13.5 and 13.6.
package cover
