package script_test

import (
	"fmt"
	"slices"
	"testing"
)

// unchanged says that reading changed nothing: no machine was bought or drained.
func unchanged(t *testing.T, x *truth, _ string) {
	t.Helper()
	if n := x.count("configured"); n != len(x.nodes["red"])+len(x.nodes["blue"]) {
		t.Errorf("%d machines are configured, and there are Nodes %v", n, x.nodes)
	}
}

func spends(cluster string) func(*testing.T, *truth, string) {
	return func(t *testing.T, x *truth, out string) {
		t.Helper()
		has(t, out, fmt.Sprintf("$%.2f/h", x.spend(cluster)))
	}
}

// questions are what people ask, in the order of the page. Those that change something undo it with the next.
func questions() []question {
	return slices.Concat(aboutDemand(), aboutMachines(), aboutTime(), aboutMoney(), aboutTheFleet())
}

func aboutDemand() []question {
	return []question{
		{"Why does my Pod wait?", "explain pod WAITING -n default --kube-context red", 0,
			[]string{"Pod  Pending, waiting for a Node: …", "row  need/red/HUGE", "Short by 3 Pods of cpu 500, memory 1Gi. Machines match, but none is large enough for one of these Pods. …", "Nearest miss: …"},
			"the Pods of the cluster that have no Node", func(t *testing.T, x *truth, _ string) {
				if x.waiting["red"] != 5 {
					t.Errorf("%d Pods wait: 3 huge ones and 2 of the batch should", x.waiting["red"])
				}
			}},
		{"Why does my Deployment not have all its Pods?", "explain deployment huge --kube-context red", 0,
			[]string{"deployment/default/huge has 3 Pods: 0 run, 3 wait for a Node, 0 on a Node do not run yet.", "3 waiting Pods, for example:"}, "", nil},
		{"On which machine does my Pod run?", "explain pod RUNNING --kube-context red", 0,
			[]string{"Pod  Running, on Node NODE", "Node  NODE is machine NODE", "In use by ROW of cluster red, priority 5."}, "the Pod's Node", func(t *testing.T, x *truth, out string) {
				if !slices.ContainsFunc(x.nodes["red"], func(n string) bool { return lines(out, " is machine "+n+"$") == 1 }) {
					t.Errorf("the machine is no Node of red: %v", x.nodes["red"])
				}
			}},
		{"What do we wait for, and why?", "get needs --unmet", 0,
			[]string{"red/HUGE  0  short  AGE  …  Machines match, but none is large enough for one of these Pods.", "red/BATCH  -10  short  AGE  …  No suitable machine is free."},
			"the needs of which Pods wait", func(t *testing.T, _ *truth, out string) {
				if n := lines(out, " short "); n != 2 {
					t.Errorf("%d needs are short", n)
				}
			}},
		{"Who holds the machines that I need?", "explain need/red/BATCH", 0,
			[]string{"Held instead by:", "  2 machines  need/blue/URGENT  priority 1000000: It has a higher priority.", "Try: …"}, "the Nodes of the cluster that holds them", func(t *testing.T, x *truth, _ string) {
				if n := len(x.nodes["blue"]); n < 2 {
					t.Errorf("blue has %d Nodes", n)
				}
			}},
		{"Which machines would the need take, at what price?", "explain need/blue/URGENT --candidates", 0, []string{"Met: …", "Candidates, cheapest first: …"}, "", nil},
		{"Which needs are those of my namespace?", "get needs --namespace default --kube-context red", 0,
			[]string{"red/HUGE  default (3)  0  short  …", "red/BATCH  default (12)  -10  short  …"}, "the Pods of the namespace", func(t *testing.T, _ *truth, out string) {
				if n := lines(out, "^red/"); n != 3 || lines(out, "^blue/") != 0 {
					t.Errorf("%d needs are listed; the namespace has three kinds of Pods", n)
				}
			}},
		{"And those of my team, by a label of its namespaces?", "get needs --team default --team-label kubernetes.io/metadata.name --unmet --kube-context red", 0,
			[]string{"red/HUGE  default (3)  0  short  …"}, "", nil},
		{"Which needs wait behind higher priorities?", "get needs --reason priority-starved", 0, []string{"red/BATCH  -10  short  …"}, "", nil},
		{"In which order are needs served?", "top --once", 0, []string{"blue/URGENT  1000000  met  100%  2  0  PRICE  …", "---- the first need that is short -------"}, "", nil},
		{"Is all demand of a cluster met? (in a script)", "wait --for met cluster/blue", 0, []string{"N of N needs are met"}, "the Pods of the cluster, none of which waits", func(t *testing.T, x *truth, _ string) {
			if x.waiting["blue"] != 0 {
				t.Errorf("%d Pods of blue wait", x.waiting["blue"])
			}
		}},
		{"And of one that waits?", "wait --for met cluster/red --timeout 1s", 4, []string{"N of 3 needs are met", "bigfleet: not met after 1s: …"}, "", nil},
		{"What capacity was announced to the cluster?", "get hints --cluster red", 0, []string{"red  N  WORD  …"}, "", nil},
	}
}

func aboutMachines() []question {
	return []question{
		{"Which machines do we have?", "get machines --state configured", 0, []string{"MACHINE  configured  blue  g.8x  …"}, "the Nodes of all clusters", func(t *testing.T, x *truth, out string) {
			unchanged(t, x, out)
			for _, n := range slices.Concat(x.nodes["red"], x.nodes["blue"]) {
				has(t, out, n)
			}
		}},
		{"Why do we have this machine?", "explain machine/MACHINE", 0,
			[]string{"In use by URGENT of cluster blue, priority 1000000.", "Became a Node of cluster blue at TIME (AGE ago, after AGE): need/blue/URGENT (priority 1000000) outranks need/red/BATCH (priority -10) and takes its machine. …"},
			"the Nodes of the cluster", func(t *testing.T, x *truth, out string) {
				if !slices.ContainsFunc(x.nodes["blue"], func(n string) bool { return lines(out, "^"+n+" has been configured") == 1 }) {
					t.Errorf("the machine is no Node of blue: %v", x.nodes["blue"])
				}
			}},
		{"Why was this Node removed, and who took its machine?", "explain node/MACHINE --kube-context red", 0,
			[]string{"Node  MACHINE: this cluster has no such Node now", "decision log  MACHINE was machine MACHINE", "Became a Node of cluster blue at TIME … outranks need/red/BATCH (priority -10) and takes its machine. …"}, "", nil},
		{"By which terms was it chosen?", "history machine/MACHINE", 0,
			[]string{"TIME  preempt started  MACHINE  red  outranked  …  need/blue/URGENT (priority 1000000) outranks need/red/BATCH (priority -10) and takes its machine. It was chosen by its victim score of WORD (priority WORD …). Its Pods have WORD to leave."},
			"", nil},
		{"Why was this machine released, and when?", "explain machine/GONE", 0, []string{"Left cluster blue at TIME (AGE ago, after AGE): No need uses it any more; it was WORD that used it."},
			"the Nodes of the cluster, which has it no more", func(t *testing.T, x *truth, out string) {
				for _, n := range x.nodes["blue"] {
					if lines(out, "^"+n+" has been configured") > 0 {
						t.Errorf("%s still is a Node of blue", n)
					}
				}
			}},
		{"What is stuck?", "get machines --flag stuck,unjoined", 0, []string{"no machines"}, "", nil},
		{"What is being drained, and what blocks it?", "get drains", 0, []string{"no drains"}, "the cloud's own list, in which no machine is draining", func(t *testing.T, x *truth, _ string) {
			if n := x.count("draining"); n > 0 {
				t.Errorf("%d machines are draining", n)
			}
		}},
		{"What could be bought of a type?", "get machines --state speculative --type m.8x", 0, []string{"WORD  speculative  —  m.8x  …"}, "the cloud's own list", func(t *testing.T, x *truth, out string) {
			n := 0
			for _, m := range x.machines {
				if m.State == "MACHINE_STATE_SPECULATIVE" && m.InstanceType == "m.8x" {
					n++
				}
			}
			if got := lines(out, " speculative "); got != n {
				t.Errorf("%d are listed, the cloud has %d", got, n)
			}
		}},
		{"Everything about one machine?", "describe machine MACHINE", 0, []string{"STATE  configured", "CLUSTER  blue", "Why", "Last"}, "", nil},
	}
}

func aboutTime() []question {
	return []question{
		{"What happened in the fleet between two times?", "history --from 1h --to 1s --limit 1000", 0, []string{"TIME  reclaim ended  GONE  blue  unused  success  …"}, "", nil},
		{"What happened to my cluster?", "history cluster/red --since 1d", 0, []string{"TIME  session-opened  —  red  …"}, "", nil},
		{"What has changed since?", "history --diff 1", 0, []string{"shard-0, plan of cycle N against that of cycle 1:", "~ need/red/BATCH: absent -> short"}, "", nil},
		{"How did demand stand a moment ago?", "get needs --at 1s", 0, []string{"blue/URGENT  1000000  met  …"}, "", nil},
	}
}

func aboutMoney() []question {
	return []question{
		{"What do we spend, and for which cluster?", "cost --by cluster", 0, []string{"prices as stated by the providers", "red  N  PRICE  …"}, "the prices of the cloud's machines that have a host", spends("red")},
		{"With which provider, for which type?", "cost --by provider,type", 0, []string{"demo  g.8x  12  PRICE  …"}, "the prices of the cloud's machines of that type", func(t *testing.T, x *truth, out string) {
			sum := 0.0
			for _, m := range x.machines {
				if m.InstanceType == "g.8x" && m.State != "MACHINE_STATE_SPECULATIVE" {
					sum += m.PricePerHour
				}
			}
			has(t, out, fmt.Sprintf("$%.2f/h", sum))
		}},
		{"What do we pay for and not use?", "cost --waste", 0, []string{"CLUSTER  MACHINES  ASKED  BOUGHT  USED  SERVING  UNUSED  IDLE  STUCK  WASTE", "red  N  cpu=…", "TOTAL  N  …"}, "the spend of the cloud's machines of the cluster", func(t *testing.T, x *truth, out string) {
			has(t, out, fmt.Sprintf("$%.2f/h", x.spend("blue")))
		}},
		{"What did the past cost?", "cost --record DIR --points 2", 0, []string{"SPENT  $N"}, "", nil},
		{"What happens next?", "plan", 0, []string{"shard-0, snapshot of cycle N:", "  PRICE -> PRICE"}, "the spend there is", spends("")},
		{"What if a cluster needs more?", "plan --add-demand red:cpu=4", 0, []string{"~ need/red/WORD: absent -> …"}, "the machines, none of which is bought for it", unchanged},
		{"What if ten Pods of a size come?", "plan --add-demand blue:pods=10,cpu=2,memory=4Gi", 0, []string{"~ need/blue/WORD: absent -> …"}, "the machines, none of which is bought for it", unchanged},
		{"What if a zone fails?", "plan --drain-zone demo-1a", 0, []string{"shard-0, snapshot of cycle N:"}, "the machines, none of which is drained for it", unchanged},
		{"What if this machine breaks?", "plan --remove-machine MACHINE", 0, []string{"shard-0, snapshot of cycle N:"}, "the machines, all of which stay", unchanged},
	}
}

func aboutTheFleet() []question {
	return []question{
		{"Is everything all right?", "status", 0, []string{"needs  4, 2 unmet", "oldest  red/ROW waits for AGE: bigfleet explain need/red/ROW", "spend  PRICE"}, "the cloud's machines", func(t *testing.T, x *truth, out string) {
			spends("")(t, x, out)
			has(t, out, fmt.Sprintf("%d configured", x.count("configured")))
		}},
		{"What is broken, and what repairs it?", "doctor", 0, []string{"ok  shard shard-0: ready, …", "ok  provider …: N machines sampled, all within the contract", "nothing failed, …"}, "", nil},
		{"Which clusters are connected?", "get clusters", 0, []string{"blue  shard-0  up AGE  …", "red  shard-0  up AGE  …"}, "", nil},
		{"Why does my cluster release nothing?", "explain cluster/red", 0, []string{"Cluster red is connected to shard-0; 2 of its 3 needs are unmet (…).", "Its release gate is open: …"}, "", nil},
		{"How do I stop everything?", "pause --all --reason 'an incident' --yes", 0, []string{"SHARD  PAUSE  UNTIL", "shard-0  WORD  —"}, "the Nodes, which all stay", unchanged},
		{"Who stopped what, and why?", "get pauses", 0, []string{"WORD  …  an incident  …"}, "", nil},
		{"What keeps actions back now?", "guards", 0, []string{"shard-0  pause  …an incident…"}, "", nil},
		{"How do I continue?", "resume --all --reason 'it is over' --yes", 0, []string{"shard-0: ended WORD"}, "the pauses, of which none is left", func(t *testing.T, x *truth, _ string) {
			if out := x.w.command(t, "get", "pauses", "-o", "name"); out != "" {
				t.Errorf("pauses are left: %s", out)
			}
		}},
		{"Which shards are there?", "get shards", 0, []string{"shard-0  active  WORD  AGE"}, "", nil},
		{"Who leads the coordinator?", "raft status", 0, []string{"coordinator-0  leader  coordinator-0  …"}, "", nil},
		{"Does the provider answer?", "provider ping PROVIDER", 0, []string{"Provider demo answers at PROVIDER …", "machines  N"}, "the cloud's own list", func(t *testing.T, x *truth, out string) {
			if lines(out, fmt.Sprintf(`^machines +%d$`, len(x.machines))) != 1 {
				t.Errorf("the cloud has %d machines", len(x.machines))
			}
		}},
		{"How do I limit what a provider may give us?", "quota set demo 100 --reason 'a limit' --yes", 0, []string{"done"}, "", nil},
		{"Which limits are set?", "get quotas", 0, []string{"demo  100  …"}, "", nil},
		{"How do I take a limit away?", "quota delete demo --reason over --yes", 0, []string{"done"}, "", nil},
		{"Who changed what in the coordinator?", "get audit", 0, []string{"N  TIME  CoordinatorAdmin/SetQuota  …  a limit"}, "", nil},
		{"Is there a backup, and is it good?", "snapshot save backup && bigfleet snapshot verify backup", 0, []string{"backup: index N, N bytes, verified", "ok: index N, N bytes, …"}, "", nil},
		{"Which versions run?", "version", 0, []string{"client  …", "shard shard-0  …"}, "", nil},
	}
}
