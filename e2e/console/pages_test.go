package console

import (
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// OPS-6.11, OPS-6.7: on `bigfleet up` every page is shown in both themes without a serious finding of axe or a violation of the policy, and
// each of the three questions is answered by keyboard alone: why a Pod waits, why a machine was taken away, where the money goes.
func TestPagesAndStories(t *testing.T) {
	web(t)
	at := addresses(t, 7)
	base := "http://" + at[0]
	proc.StartT(t, proc.Config{Name: "up", Path: proc.BuildT(t, program), Args: []string{"up", "--scenario", "testdata/story.txt", "--speed", "4", "--console", at[0],
		"--shard-listen", at[1], "--coordinator-listen", at[2], "--raft-bind", at[3], "--provider-listen", at[4], "--control-listen", at[5], "--demo-listen", at[6],
		"--shard-metrics-addr", "0", "--coordinator-metrics-addr", "0"}, Ready: proc.HTTP(base, nil)})
	f := newFleet(t, base)
	taken := f.machine("the cloud takes a machine back", func(r *v1.DecisionRecord) bool {
		return r.GetType() == v1.RecordType_RECORD_TYPE_INTERRUPTION
	})
	victim := f.machine("an urgent need takes a machine", func(r *v1.DecisionRecord) bool {
		return r.GetKind() == v1.ActionKind_ACTION_KIND_PREEMPT && r.GetClusterId() == "red"
	})
	eventually(t, "a Pod waits", func() (bool, bool) {
		got, err := f.read.GetStatus(t.Context(), connect.NewRequest(&v1.GetStatusRequest{}))
		return true, err == nil && got.Msg.GetUnsatisfiedNeeds() > 0
	})
	browse(t, "pages.mjs", []string{"MACHINE=" + taken, "VICTIM=" + victim}, base)
}
