package up

import (
	"fmt"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// meanings are the kinds of actions in a newcomer's words, in the order of a machine's life.
var meanings = [][2]string{
	{"provision", "asked for"}, {"bootstrap", "joined to a cluster"}, {"preempt", "taken for a higher priority"},
	{"reclaim", "released because unneeded"}, {"delete", "returned to the cloud"},
}

// inWords are the numbers of a story for the screen of `up`.
func inWords(n map[string]any) string {
	var done []string
	actions, _ := n["actions"].(map[string]int)
	for _, m := range meanings {
		if count := actions[m[0]]; count > 0 {
			done = append(done, fmt.Sprintf("%s %s", output.Count(count, "machine"), m[1]))
		}
	}
	if len(done) == 0 {
		done = []string{"no machine bought, moved or taken"}
	}
	spent, _ := n["spendBefore"].(float64)
	spends, _ := n["spendAfter"].(float64)
	return fmt.Sprintf("in %.1f s: %s; Pods that run %v -> %v, %v wait; needs unmet %v -> %v; %s -> %s", n["seconds"], strings.Join(done, ", "),
		n["podsRunBefore"], n["podsRun"], n["podsWait"], n["needsUnmetBefore"], n["needsUnmet"], output.Dollars(spent), output.Dollars(spends))
}
