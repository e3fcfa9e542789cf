// Package remedy says what to do about each warning that a shard gives in its status: `status` and `doctor` print the same words.
package remedy

import "strings"

// byPhrase is searched in order: a warning holds names and numbers around its phrase.
var byPhrase = []struct{ phrase, do string }{
	{"superseded: ", "Find the other process with this shard's id and stop one of the two; never restart both"},
	{" was never listed", "`bigfleet provider ping ADDRESS` checks the provider; its log says more"},
	{"the inventory of provider ", "`bigfleet provider ping ADDRESS` checks the provider; the shard retries automatically"},
	{" removals at provider ", "`bigfleet provider list ADDRESS` shows what it lists now; `bigfleet reconcile --reason TEXT` reads it in full"},
	{"the breaker of provider ", "`bigfleet provider ping ADDRESS` checks the provider; the shard retries automatically"},
	{" held by the guard", "`bigfleet guards` names the clusters; `bigfleet rollups accept CLUSTER --reason TEXT` accepts the lower demand of one"},
	{" have not reported", "`bigfleet get clusters` names them; check their operators"},
	{" machines are Failed", "`bigfleet get machines --state failed` names them, `bigfleet explain machine/ID` says what the provider answered"},
	{"no TLS: ", "Give every process --tls-cert, --tls-key and --tls-ca"},
	{"coordinator: ", "`bigfleet doctor` looks at both ends; never run two processes with one shard id"},
}

// Of is what to do about a warning; "" when nothing is known of it.
func Of(warning string) string {
	for _, r := range byPhrase {
		if strings.Contains(warning, r.phrase) {
			return r.do
		}
	}
	return ""
}
