package script_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/schema"
)

// asked are the command lines by which the answers of verbs come about, where the verb alone is not enough. Several are apart by |.
var asked = map[string]string{
	"history":  "history machine/MACHINE|history --diff 1",
	"explain":  "explain need/red/BATCH|explain machine/MACHINE|explain cluster/red|explain pod WAITING --kube-context red|explain pod RUNNING --kube-context red|explain deployment huge --kube-context red|explain node/NODE --kube-context red",
	"describe": "describe machine MACHINE|describe cluster red|describe need/red/BATCH|describe shard shard-0",
	"cost":     "cost|cost --waste|cost --by provider,type|cost --record DIR --points 2", "plan": "plan|plan --drain-zone demo-1a", "wait": "wait --for met cluster/blue",
	"get machines": "get machines --all", "crds diff": "crds diff --kube-context red", "crds apply": "crds apply --kube-context red", "doctor": "doctor",
	"replay": "replay DIR", "snapshot save": "snapshot save answer", "snapshot verify": "snapshot verify answer", "snapshot inspect": "snapshot inspect answer",
	"snapshot restore": "snapshot restore answer --data-dir restored --node-id node-9 --raft-advertise localhost:1", "provider ping": "provider ping PROVIDER", "provider list": "provider list PROVIDER",
	"pause": "pause --all", "resume": "resume --all", "dry-run": "dry-run on", "machines retry": "machines retry MACHINE", "machines forget": "machines forget MACHINE",
	"machines drain": "machines drain NODE --kube-context red", "machines cordon": "machines cordon NODE --kube-context red", "machines uncordon": "machines uncordon NODE --kube-context red",
	"rollups accept": "rollups accept red", "clusters retire": "clusters retire red --machines 11", "clusters unretire": "clusters unretire red", "backoff clear": "backoff clear --provider demo",
	"reservations abandon": "reservations abandon mv-1", "clusters bind": "clusters bind red shard-0", "clusters unbind": "clusters unbind red", "shards drain": "shards drain shard-0",
	"shards undrain": "shards undrain shard-0", "shards readmit": "shards readmit shard-0", "shards remove": "shards remove shard-0", "shards reset-epoch": "shards reset-epoch shard-0 1",
	"domains assign": "domains assign topology.kubernetes.io/zone=demo-1a shard-0", "domains unassign": "domains unassign topology.kubernetes.io/zone=demo-1a",
	"domains move": "domains move topology.kubernetes.io/zone=demo-1a shard-0", "domains finish": "domains finish topology.kubernetes.io/zone=demo-1a",
	"quota set": "quota set demo 100", "quota delete": "quota delete demo", "providers set": "providers set other --address 127.0.0.1:9", "providers remove": "providers remove other",
	"rebalance set": "rebalance set --mode dry-run", "rebalance cancel": "rebalance cancel mv-1", "raft remove-peer": "raft remove-peer node-9", "raft readmit": "raft readmit node-9",
	"raft transfer-leader": "raft transfer-leader node-9", "instructions retry": "instructions retry shard-0 i-1",
}

// forReal are orders without a dry run, or whose dry run has no answer.
var forReal = []string{"restore", "reconcile"}

// refused are orders that the state of this fleet does not allow, even as a dry run: there is nothing that they could be about. Their answers are messages.
var refused = []string{
	"reservations abandon", "machines forget", "rollups accept", "clusters retire", "clusters unretire", "shards readmit", "shards remove", "domains move", "domains unassign", "domains finish", "quota delete",
	"providers remove", "rebalance cancel", "raft remove-peer", "raft readmit", "raft transfer-leader", "instructions retry", "clusters unbind", "clusters bind", "resume",
}

// elsewhere are verbs whose answers other tests compare.
var elsewhere = map[string]string{"demo": "demo.txtar plays one", "events": "it prints the records of history, one on each line, until Ctrl-C"}

// OPS-4.2: what each verb prints with -o json is what docs/answers.schema.json says, and nothing that it does not say.
func everyAnswerFits(t *testing.T, w *world, dir string, names map[string]string) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	raw, err := json.Marshal(schema.Document(true))
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("answers.json", document); err != nil {
		t.Fatal(err)
	}
	fits := 0
	for _, verb := range slices.SortedFunc(maps.Keys(schema.Answers()), savedFirst) {
		if elsewhere[verb] != "" {
			continue
		}
		of, err := compiler.Compile("answers.json#/$defs/" + schema.Key(verb))
		if err != nil {
			t.Fatal(err)
		}
		line := asked[verb]
		if line == "" {
			line = verb
		}
		for one := range strings.SplitSeq(line, "|") {
			got, out := answered(t, w, dir, flagged(t, one, names))
			switch answer, err := jsonschema.UnmarshalJSON(strings.NewReader(out)); {
			case got != exit.OK && got != exit.Problems && out == "":
				if !slices.Contains(refused, verb) {
					t.Errorf("`bigfleet %s` ends with %d and prints no answer", one, got)
				}
			case err != nil:
				t.Errorf("`bigfleet %s -o json` prints no JSON: %v\n%s", one, err, out)
			default:
				fits++
				if err := of.Validate(answer); err != nil {
					t.Errorf("`bigfleet %s -o json` is not as docs/answers.schema.json says: %v\n%s", one, err, out)
				}
			}
		}
	}
	if fits < 60 {
		t.Errorf("only %d answers were compared", fits)
	}
}

// savedFirst puts the archive before those that read it.
func savedFirst(a, b string) int {
	const saved = "snapshot save"
	switch {
	case a == b:
		return 0
	case a == saved:
		return -1
	case b == saved:
		return 1
	}
	return strings.Compare(a, b)
}

// flagged is a command line with its names and the flags that it needs. What is not done for real is a dry run.
func flagged(t *testing.T, line string, names map[string]string) string {
	t.Helper()
	verb, _, err := cli.New(app.New(env.System())).Find(strings.Fields(line))
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"reason=tested", "yes", "dry-run"} {
		name, _, _ := strings.Cut(flag, "=")
		if verb.Flags().Lookup("yes") == nil { // another flag of the same name
			continue
		}
		if verb.Flags().Lookup(name) != nil && !(name == "dry-run" && slices.Contains(forReal, verb.Name())) {
			line += " --" + flag
		}
	}
	return regexp.MustCompile(`\b[A-Z]+\b`).ReplaceAllStringFunc(line, func(word string) string {
		if name, ok := names[word]; ok {
			return name
		}
		return word
	})
}

// answered runs a command line in this process.
func answered(t *testing.T, w *world, dir, line string) (exit.Code, string) {
	t.Helper()
	fields := strings.Fields(strings.ReplaceAll(line, "'", ""))
	for i, f := range fields {
		if f == "answer" || f == "restored" {
			fields[i] = filepath.Join(dir, f)
		}
	}
	variables := map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "xdg")}
	var out, notes bytes.Buffer
	got := cli.Main(t.Context(), env.Env{In: strings.NewReader(""), Out: &out, Err: &notes, Now: time.Now, Getenv: func(key string) string { return variables[key] }},
		append(fields, "-o", "json", "--kubeconfig", w.env["WORLD_KUBECONFIG"]))
	if out.Len() == 0 {
		t.Logf("$ bigfleet %s: %d\n%s", line, got, &notes)
	}
	return got, out.String()
}
