package fleet

import (
	"errors"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-4.6, OPS-4.10: a server that does not answer is named and makes 5; one that refuses has answered, and its words and code are shown.
func TestPartsThatFail(t *testing.T) {
	away := &exit.Error{Code: exit.Unreachable, Message: "status of b: nothing answers at b:1"}
	bound := &exit.Error{Code: exit.Refused, Message: "forget of a: the machine is bound"}
	denied := &exit.Error{Code: exit.Denied, Message: "forget of b: you may not"}
	a, b := Shard{ID: "a"}, Shard{ID: "b"}
	for _, c := range []struct {
		name   string
		shards []Shard
		errs   []error
		code   exit.Code
		says   string
	}{
		{"well", []Shard{a, b}, []error{nil, nil}, exit.OK, ""},
		{"the only one is away", []Shard{b}, []error{away}, exit.Unreachable, "status of b: nothing answers at b:1"},
		{"one of two is away", []Shard{a, b}, []error{nil, away}, exit.Unreachable, "no answer from b. status of b: nothing answers at b:1"},
		{"one of two refuses", []Shard{a, b}, []error{bound, nil}, exit.Refused, "forget of a: the machine is bound"},
		{"both refuse", []Shard{a, b}, []error{bound, denied}, exit.Refused, "forget of a: the machine is bound; forget of b: you may not"},
		{"one refuses, one is away", []Shard{a, b}, []error{bound, away}, exit.Unreachable, "no answer from b; forget of a: the machine is bound. status of b: nothing answers at b:1"},
	} {
		err := partial(c.shards, c.errs)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if exit.CodeOf(err) != c.code || text != c.says {
			t.Errorf("%s: %d, %q; want %d, %q", c.name, exit.CodeOf(err), text, c.code, c.says)
		}
		for _, e := range c.errs {
			if e != nil && !errors.Is(err, e) {
				t.Errorf("%s: %v is lost", c.name, e)
			}
		}
	}
}
