// Package reference is the planning algorithm in its simplest form.
//
// It is docs/spec/engine.md as code: every question is answered by a walk over all machines or all needs. Nothing is cached,
// indexed or kept in order, and strings are compared as strings (ENG-7.6). It answers what planner.Plan answers, byte for
// byte, but takes quadratic time. Tests compare the two; nothing else imports this package, and tools/deptest checks that.
//
// # The algorithm, by file
//
//   - plan.go: the phases in their order (ENG-2.7) and the state that they share.
//   - world.go: machines as they count for a need: label lookup, match, fit, supply, cost (ENG-3, 6 and 7).
//   - normalise.go: gangs that fit one machine become one need (ENG-8).
//   - join.go: Configured machines that never joined are not credited (ENG-17).
//   - count.go: what a claim counts for, the residual of a need, and claiming in order (ENG-3.7, 6.4, 9.2).
//   - credit.go: which machines of its own cluster a need has (ENG-9).
//   - share.go: a need may use what another need leaves unused on its machines (ENG-11); whole units (ENG-4.12).
//   - gang.go: the one domain of a gang (ENG-10).
//   - acquire.go: the allocations, one need after the other (ENG-12).
//   - cover.go: the cheapest free machines for a residual (ENG-13.1 to 13.7). spread.go: the same under a skew (ENG-13.9).
//   - exchange.go: needs that bought of an exhausted kind try another order (ENG-13.10).
//   - preempt.go: machines taken from needs of lower priority (ENG-15).
//   - settle.go: the actions: acquisitions, drains and releases (ENG-2.10, 16).
//   - publish.go and verdict.go: blocks, and a verdict with its reason for every row (ENG-19).
//
// Each step is a type: normalising, crediting, covering, acquisition, exchanging, preempting, verdicts and settling. All of them see State, which
// answers what every step asks: does a machine match, what does it count for, who claims it.
//
// To change a rule, change its clause, this package, the planner and a dialogue.
package reference
