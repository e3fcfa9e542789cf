package schema_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/schema"
)

// OPS-4.2: the committed schema is that of this command.
func TestSchemaIsCommitted(t *testing.T) {
	want, err := schema.Text()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../../../../docs/answers.schema.json"); err != nil || string(got) != string(want) {
		t.Errorf("docs/answers.schema.json is not what `go generate ./internal/schema` writes (%v)", err)
	}
}

// Every verb says what it prints as data, or why it prints none.
func TestEveryVerbHasAnAnswer(t *testing.T) {
	answers, silent := schema.Answers(), schema.Silent()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		verb := strings.TrimPrefix(c.CommandPath(), "bigfleet ")
		if c.Hidden || verb == "help" {
			return
		}
		for _, child := range c.Commands() {
			walk(child)
		}
		if !c.Runnable() || c.HasSubCommands() || verb == "get" { // whose kinds are checked by the test that runs them
			return
		}
		if len(answers[verb]) == 0 && silent[verb] == "" {
			t.Errorf("`bigfleet %s` is in no list of answers.go", verb)
		}
		delete(answers, verb)
		delete(silent, verb)
	}
	walk(cli.New(app.New(env.System())))
	for verb := range answers {
		if !strings.HasPrefix(verb, "get ") {
			t.Errorf("answers.go has `bigfleet %s`, which is no verb", verb)
		}
	}
	for verb := range silent {
		t.Errorf("answers.go says that `bigfleet %s` is silent, which is no verb", verb)
	}
}
