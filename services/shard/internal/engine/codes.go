package engine

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// code is the text of one code: its name on paper and in records, a sentence for people, and what could be done (ENG-19.10). The tables lie
// beside the constants: detail.go, keep.go and action.go.
type code struct{ name, say, do string }

// withheldCodes say what a mark means for the machine that has it.
var withheldCodes = [...]code{
	{"", "", ""},
	{"backoff", "an action on it failed recently", "It is retried automatically. If that fails too, check the provider's error."},
	{"stock-out", "its provider is out of stock for its type", "It is retried automatically. Request more from the provider, or allow other types and zones."},
	{"quota", "this shard has used up its slice of the quota", "Raise the quota, or this shard's slice of it."},
	{"", "", ""}, // a number that was given up
	{"reserved", "it is reserved for a move to another shard", "It is handed over when the move completes. To keep it, cancel the move."},
	{"not-joined", "it never became a Node of its cluster", "Other clusters may use it now, and that cluster when the mark expires. Check the bootstrap template and the network of the Nodes."},
	{"elsewhere", "its domain belongs to another shard", "Released when that need requires less; once Idle it belongs to the other shard. To keep it here, assign the domain to this shard."},
	{"provider-down", "its provider does not answer", "It is offered again when the provider answers. `bigfleet provider ping ADDRESS` checks the provider."},
	{"drained", "a person drained it", "If it is repaired, `bigfleet machines retry ID` offers it at once."},
}

var _ [0]struct{} = [len(withheldCodes) - inventory.WithheldReasons]struct{}{}

// MarkSentence says what a mark means for the machine that has it, and what could be done about it.
func MarkSentence(r inventory.WithheldReason) (say, do string) {
	c := withheldCodes[r]
	return c.say, c.do
}

func nameOf(table []code, i int) string {
	if c := codeOf(table, i); i == 0 || c != (code{}) {
		return c.name
	}
	return "UNKNOWN"
}

// codeOf is the code of a number, or nothing where the table has none.
func codeOf(table []code, i int) (c code) {
	if i < len(table) {
		c = table[i]
	}
	return c
}
