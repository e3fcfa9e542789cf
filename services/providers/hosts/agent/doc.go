// Package agent runs on a host of provider hosts. It dials the provider, takes one task at a time and reports what is on the
// host; nothing listens.
//
// There are two tasks, each a fixed list of steps: configure makes a clean host a node of one cluster, reset removes everything
// that a cluster put there and proves it by looking. No step runs a command that came over the network: boot data is a list of
// files below /etc/kubernetes and the flags of one kubelet (bootdata.go), and what asks for more is refused.
//
// Each step may be repeated. The journal names the operation and the step before the step begins, so that an agent that was
// killed continues where it was, and an operation that came twice has its effect once. The kubelet and the runtime are no
// children of the agent's life: they continue without it.
//
// Start at Agent.Run, then steps.go; linux.go is what the steps do to a real machine.
package agent
