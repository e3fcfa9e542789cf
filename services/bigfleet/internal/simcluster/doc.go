// Package simcluster models what lives in a simulated cluster beside BigFleet: workloads, a packing scheduler, and kubelets.
//
// A Cluster is a kubesim store served on a loopback port, plus three loops. Workloads keep a Deployment's Pods in number.
// The scheduler binds a Pod to the fullest Node that fits it, by the rules that decide where a Pod may run at all: node
// selector and affinity, taints, resources, hard spread and required Pod affinity. Kubelets make Nodes Ready, run and end Pods.
//
// These are models and only these (OPS-5.2): the operator, the pod controller and everything behind them are the real ones and
// reach the cluster over the Kubernetes REST protocol. The loops own no decision about capacity. Start at Cluster.
package simcluster
