package plan

import (
	"bytes"
	"testing"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-4.10, OPS-4.16: an edit that no shard understands is something that does not exist; one that another shard understands
// is not, and neither is what a shard says about the whole plan: it works in dry run and pause.
func TestWarningsAndTheExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		warnings [][]string // of each shard
		failOn   []string
		want     exit.Code
	}{
		"no shard knows it":         {[][]string{{"no such machine: m-1"}, {"no such machine: m-1"}}, nil, exit.NotFound},
		"and is to fail":            {[][]string{{"no row r1 in cluster red"}}, []string{"unmet"}, exit.NotFound},
		"one shard has it":          {[][]string{{"no such machine: m-1"}, nil}, []string{"unmet"}, exit.OK},
		"all are paused":            {[][]string{{"actuation is paused: none of these actions would start"}}, []string{"unmet"}, exit.OK},
		"all are in dry run":        {[][]string{{"dry run: none of these actions would start"}}, []string{"unmet"}, exit.OK},
		"none comes to rest":        {[][]string{{"the plan still changes after 9 rounds"}}, []string{"unmet"}, exit.OK},
		"a flag that plays no part": {[][]string{{"--dry-run changes nothing here: it determines whether actions start, not which ones"}}, []string{"unmet"}, exit.OK},
	} {
		var out, said bytes.Buffer
		a := app.New(env.Env{Out: &out, Err: &said, Getenv: func(string) string { return "" }})
		var answers []answer
		for _, w := range tc.warnings {
			answers = append(answers, answer{&bigfleetv1alpha1.PlanResponse{Warnings: w}, "s"})
		}
		if got := exit.CodeOf(show(a, answers, tc.failOn, nil)); got != tc.want {
			t.Errorf("%s: exit %d, want %d", name, got, tc.want)
		}
	}
}
