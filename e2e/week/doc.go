// Package week plays a week of a cluster in a minute: rollouts, waves of replicas, jobs, drains by people, lost nodes and disruption
// budgets, in an order that a seed draws, on a real control plane with the whole of BigFleet and a provider whose drain is real.
//
// An observer sees every change of Pods and Nodes. At the end it counts who was evicted by whom, what an optimal choice would have
// evicted, how many nodes were drained for each that went, and which Pods waited without a word.
//
// The test plays a short week; `make week SEEDS=n` plays n longer ones. Start at TestWeek.
package week
