package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// sectionsOfHelp are the headings of `bigfleet --help`, by what somebody wants to do. A test puts every verb into one.
var sectionsOfHelp = []struct {
	title string
	verbs []string
}{
	{"Try it:", []string{"up", "demo", "all-in-one"}},
	{"See what is, and why:", []string{"status", "top", "get", "describe", "explain", "history", "events", "cost", "guards", "pauses", "drains", "doctor"}},
	{"Ask what would be:", []string{"plan", "replay", "wait"}},
	{"Act:", []string{"pause", "resume", "machines", "clusters", "rollups", "backoff", "quota", "reconcile", "dry-run"}},
	{"Run the management plane:", []string{"shards", "domains", "providers", "rebalance", "reservations", "instructions", "raft", "snapshot", "crds", "certs"}},
	{"Write a provider:", []string{"provider"}},
	{"This command:", []string{"config", "version", "roles", "completion", "help"}},
}

// sections puts the verbs under their headings.
func sections(root *cobra.Command) {
	own := sectionsOfHelp[len(sectionsOfHelp)-1].title
	root.SetHelpCommandGroupID(own)
	root.SetCompletionCommandGroupID(own)
	for _, s := range sectionsOfHelp {
		root.AddGroup(&cobra.Group{ID: s.title, Title: s.title})
		for _, c := range root.Commands() {
			if slices.Contains(s.verbs, c.Name()) {
				c.GroupID = s.title
			}
		}
	}
}
