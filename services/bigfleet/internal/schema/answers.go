package schema

import "slices"

// kinds is what stands in the list of each kind of `bigfleet get`.
func kinds() map[string]string {
	return map[string]string{
		"machines": "MachineView", "needs": "NeedView", "clusters": "ClusterView", "sessions": "ClusterView", "shards": "ShardRegistryEntry", "reports": "ShardReportSnapshot",
		"domains": "DomainAssignment", "handovers": "DomainMove", "bindings": "ClusterBinding", "moves": "Move", "quotas": "Quota", "providers": "ProviderRegistration",
		"instructions": "PendingInstruction", "audit": "AuditRecord", "peers": "RaftPeer", "hints": "CapacityHint", "pauses": "Pause", "drains": "DrainView",
	}
}

// Lists are the verbs that print what `bigfleet get` prints of a kind.
func Lists() map[string]string {
	return map[string]string{
		"machines list": "machines", "clusters list": "clusters", "clusters bindings": "bindings", "shards list": "shards", "shards report": "reports", "domains list": "domains",
		"domains moves": "handovers", "quota list": "quotas", "providers list": "providers", "rebalance moves": "moves", "raft peers": "peers", "instructions list": "instructions",
		"pauses": "pauses", "drains": "drains",
	}
}

// Answers are the items of the document that each verb prints with -o json: messages, or objects of this file.
func Answers() map[string][]string {
	out := map[string][]string{
		"status": {"GetStatusResponse", "GetCoordinatorStatusResponse"}, "top": {"NeedView"}, "history": {"DecisionRecord", "CompareCyclesResponse"}, "events": {"DecisionRecord"},
		"explain": {"ExplainResponse", "ClusterView", "Move", "trace", "workload"}, "plan": {"PlanResponse"}, "cost": {"GetCostResponse", "waste"}, "guards": {"guard"},
		"doctor": {"finding"}, "version": {"build"}, "roles": {"role"}, "wait": {"condition"}, "demo": {"demo"}, "config view": {"context"}, "crds diff": {"definition"}, "crds apply": {"definition"},
		"replay": {"replay"}, "snapshot save": {"archive"}, "snapshot verify": {"archive"}, "snapshot inspect": {"contents"}, "snapshot restore": {"restored"},
		"provider ping": {"GetProviderResponse"}, "provider list": {"Machine"}, "raft status": {"GetCoordinatorStatusResponse"}, "rebalance status": {"GetRebalanceResponse"},

		"pause": {"PauseActuationResponse"}, "resume": {"ResumeActuationResponse"}, "dry-run": {"SetDryRunResponse"}, "reconcile": {"ReconcileNowResponse"},
		"machines retry": {"RetryMachineResponse"}, "machines forget": {"ForgetMachineResponse"}, "machines drain": {"node"}, "machines cordon": {"node"}, "machines uncordon": {"node"},
		"rollups accept": {"AcceptRollupResponse"}, "clusters retire": {"RetireClusterResponse"}, "clusters unretire": {"UnretireClusterResponse"}, "backoff clear": {"ClearBackoffResponse"},
		"reservations abandon": {"AbandonReservationResponse"}, "clusters bind": {"BindClusterResponse"}, "clusters unbind": {"UnbindClusterResponse"},
		"shards drain": {"DrainShardResponse"}, "shards undrain": {"DrainShardResponse"}, "shards readmit": {"ReadmitShardResponse"}, "shards remove": {"RemoveShardResponse"},
		"shards reset-epoch": {"ResetShardEpochResponse"}, "domains assign": {"AssignDomainResponse", "MoveDomainResponse"}, "domains unassign": {"UnassignDomainResponse"},
		"domains move": {"MoveDomainResponse"}, "domains finish": {"FinishDomainMoveResponse"}, "quota set": {"SetQuotaResponse"}, "quota delete": {"DeleteQuotaResponse"},
		"providers set": {"UpsertProviderResponse"}, "providers remove": {"RemoveProviderResponse"}, "rebalance set": {"SetRebalanceResponse"}, "rebalance cancel": {"CancelMoveResponse"},
		"raft remove-peer": {"RemoveRaftPeerResponse"}, "raft readmit": {"ReadmitRaftPeerResponse"}, "raft transfer-leader": {"TransferLeadershipResponse"},
		"instructions retry": {"RetryInstructionResponse"},
	}
	all := kinds()
	for kind, item := range all {
		out["get "+kind] = []string{item}
		out["describe"] = append(out["describe"], item)
	}
	for verb, kind := range Lists() {
		out[verb] = []string{all[kind]}
	}
	slices.Sort(out["describe"])
	out["describe"] = slices.Compact(out["describe"])
	return out
}

// beside is what the command adds to items that are messages.
func beside() map[string]object {
	return map[string]object{
		"ProviderRegistration": {"shownAs": text}, "Quota": {"shownAs": text}, // get providers, get quotas: the name that shards give the provider
		"NeedView": {"requestedBy": list(record("namespace", text, "requests", whole, "team?", text))}, // get needs -A, -n, --team
	}
}

// everywhere is what the command adds to messages wherever they stand.
func everywhere() map[string]object {
	return map[string]object{
		"DecisionRecord": {"sentence": object{"type": "string", "description": "what was done and why, in words"}},
	}
}

// Silent are the verbs without such a document, and what they do instead.
func Silent() map[string]string {
	return map[string]string{
		"up": "runs until it is stopped", "all-in-one": "runs until it is stopped", "crds print": "prints YAML for kubectl", "certs dev": "writes files",
		"certs secrets": "writes Secrets", "certs follow": "writes files", "config set": "writes a file", "config use": "writes a file", "config delete": "writes a file", "provider init": "writes files", "provider conformance": "has --report FILE",
	}
}

// objects are the items that are no messages.
func objects() map[string]object {
	return map[string]object{
		"guard":      record("shard", text, "guard", text, "scope", text, "state", text, "liftedBy", text),
		"finding":    record("level", oneOf("ok", "warn", "fail"), "about", text, "say", text, "fix?", text),
		"build":      record("name", text, "version", text, "commit?", text, "date?", text, "go?", text),
		"role":       record("role", text, "does", text),
		"condition":  record("condition", text, "say", text),
		"definition": record("name", text, "missing?", flag, "differs?", list(text)),
		"node":       record("node", text, "machine", text, "zone", text, "state", text, "pods", whole),
		"trace":      record("path", steps(), "stopped?", text, "subject?", text, "explanation?", anything),
		"workload": record("subject", text, "pods", whole, "running", whole, "waiting", whole, "explained", whole,
			"causes", orNull(list(record("path", steps(), "pods", whole, "stopped?", text, "subject?", text, "explanation?", anything)))),
		"waste": record("cluster", text, "machines", whole, "asked", amounts, "bought", amounts, "usedFraction", number, "servingPerHour", number, "unusedPerHour", number,
			"idlePerHour", number, "stuckPerHour", number, "wastePerHour", number),
		"demo": record("seconds", number, "actions", counts(), "elsewhere", counts(), "podsRunBefore", whole, "podsRun", whole, "podsWait", whole, "needsUnmetBefore", whole,
			"needsUnmet", whole, "spendBefore", number, "spendAfter", number),
		"context": record("name", text, "current", flag, "coordinator?", list(text), "shard?", text, "cluster-uuid?", text, "tls-cert?", text, "tls-key?", text, "tls-ca?", text, "kubeconfig?", text, "kube-context?", text),
		"archive": record("path", text, "index", whole, "bytes", whole, "state_hash", text, "kept?", whole, "deleted?", whole),
		"contents": record("format", whole, "created_at", object{"type": "string", "format": "date-time"}, "node_id", text, "build", text, "index", whole, "term", whole,
			"configuration", list(record("node_id", text, "address", text, "suffrage", text)), "cluster_uuid", text, "previous_uuids?", list(text), "fencing_term", whole, "feature_level", whole,
			"state_hash", text, "counts", counts()),
		"restored": record("ClusterUUID", text, "PreviousUUID", text, "FencingTerm", whole, "Index", whole, "KeptDir", text),
		"replay": record("Shard", text, "Version", text, "Epoch", whole, "Segments", whole, "Steps", whole, "Records", whole, "Digests", whole, "Lost", whole, "Stopped", flag,
			"Damage", orNull(anything), "Plan?", anything),
	}
}

var (
	text     = object{"type": "string"}
	whole    = object{"type": "integer"}
	number   = object{"type": "number"}
	flag     = object{"type": "boolean"}
	anything = object{"type": "object"} // a message, or a part of a program's own
	amounts  = object{"type": "object", "additionalProperties": object{"type": "string"}}
)

func counts() object { return object{"type": "object", "additionalProperties": whole} }

func list(of object) object { return object{"type": "array", "items": of} }

func orNull(of object) object { return object{"anyOf": []any{of, object{"type": "null"}}} }

func steps() object { return list(record("at", text, "say", text)) }

func oneOf(values ...any) object { return object{"type": "string", "enum": values} }

// record is an object of names and their schemas; a name with ? may be absent.
func record(pairs ...any) object {
	properties, required := object{}, []any{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		if bare := name[:len(name)-1]; name[len(name)-1] == '?' {
			name = bare
		} else {
			required = append(required, name)
		}
		properties[name] = pairs[i+1]
	}
	return object{"type": "object", "properties": properties, "required": required}
}
