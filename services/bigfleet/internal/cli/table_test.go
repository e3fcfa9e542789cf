package cli_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// OPS-1.2, 4.2: every command that the table names is there, under that name. A slash is a choice.
func TestEveryCommandOfTheTable(t *testing.T) {
	for line := range strings.Lines(`up
demo
all-in-one
status
get
describe
explain
plan
history
top
cost
pause
resume
pauses
guards
drains
machines retry/forget
rollups accept
clusters retire/unretire/list/bind/unbind
reconcile
backoff clear
reservations abandon
shards list/report/drain/remove/readmit
domains list/assign/unassign/move/moves
quota get/set/delete
providers list/set/remove
rebalance status/set/moves/cancel
raft status/peers/remove-peer/readmit/transfer-leader
snapshot save/restore/inspect/verify
crds print/apply/diff
doctor
replay
events
wait
provider ping/list/conformance/init/sim/kwok
certs dev
certs follow
config view/use/set/delete
completion
version
list-shards
list-domain-assignments
list-quotas
assign-domain
unassign-domain
remove-shard
`) {
		group, verbs, grouped := strings.Cut(strings.TrimSpace(line), " ")
		ways := [][]string{{group}}
		if grouped {
			ways = nil
			for verb := range strings.SplitSeq(verbs, "/") {
				ways = append(ways, []string{group, verb})
			}
		}
		for _, way := range ways {
			root := cli.New(app.New(env.System()))
			root.InitDefaultCompletionCmd(way...)
			verb, rest, err := root.Find(way)
			last := way[len(way)-1]
			if err != nil || len(rest) > 0 || verb.Name() != last && !verb.HasAlias(last) {
				t.Errorf("`bigfleet %s` is not there: %v, %v left", strings.Join(way, " "), err, rest)
			}
		}
	}
}
