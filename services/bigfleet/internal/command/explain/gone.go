package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// gone explains a machine that no shard has any more, from the decision logs. notFound is what to say when they do not know it either.
func gone(ctx context.Context, a *app.App, s subject.Subject, notFound error) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	records, more, err := history.Of(ctx, a, f, shards, s.Name)
	if connect.CodeOf(err) == connect.CodeUnimplemented { // a shard may serve no history
		return notFound
	}
	if err != nil {
		return errors.Join(err, notFound)
	}
	if len(records) == 0 {
		return notFound
	}
	story := history.Story(a.Now(), records)
	verdict := "No shard has machine " + s.Name + " any more."
	if len(story) == 0 {
		story = []string{output.Line("Last record at %s: %s", output.Time(records[0].GetAtUnixNanos()), history.Sentence(records[0]))}
	}
	if !a.Format.ForPeople() {
		if more {
			a.Notef("the newest %d records are in the answer; `bigfleet history %s` shows more", len(records), s)
		}
		answer := &bigfleetv1alpha1.ExplainResponse{Verdict: verdict + " " + strings.Join(story, " "), Records: records}
		return a.Format.Write(a.Out, output.List{Items: []proto.Message{answer}, Say: history.Sentence})
	}
	_, _ = fmt.Fprintln(a.Out, output.Line("%s", verdict))
	for _, line := range story {
		_, _ = fmt.Fprintln(a.Out, line)
	}
	_, _ = fmt.Fprintln(a.Out, output.Line("More: bigfleet history %s", s))
	return nil
}
