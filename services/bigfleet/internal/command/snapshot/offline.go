package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
)

// Verbs are those of `bigfleet snapshot`. All but save work without any server.
func Verbs(a *app.App) []*cobra.Command {
	return []*cobra.Command{newSave(a), newInspect(a), newVerify(a), newRestore(a)}
}

// open reads and verifies an archive. What is wrong with it has exit code 4, a file that is not there 3.
func open(a *app.App, path string) (*archive.Archive, error) {
	got, err := archive.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &exit.Error{Code: exit.NotFound, Message: err.Error(), Hint: "`bigfleet snapshot save FILE` makes one", Err: err}
	case err != nil:
		return nil, &exit.Error{Code: exit.Problems, Reason: "damaged", Message: err.Error(), Hint: "Use another archive: this one cannot be restored", Err: err}
	}
	for _, w := range got.Warnings {
		a.Notef("warning: %s", w)
	}
	return got, nil
}

// file is an archive that was verified, for programs.
type file struct {
	Path      string `json:"path"`
	Index     uint64 `json:"index"`
	Bytes     int64  `json:"bytes"`
	StateHash string `json:"state_hash"`
	Kept      int    `json:"kept,omitempty"` // archives in the directory, where older ones are deleted
	Deleted   int    `json:"deleted,omitempty"`
}

func newInspect(a *app.App) *cobra.Command {
	var tables bool
	var table string
	c := &cobra.Command{
		Use: "inspect FILE", Args: cobra.ExactArgs(1), Short: "Show the contents, the age and the members of an archive", Example: "  bigfleet snapshot inspect backup.tar\n  bigfleet snapshot inspect backup.tar --tables",
		RunE: func(_ *cobra.Command, args []string) error {
			got, err := open(a, args[0])
			if err != nil {
				return err
			}
			if tables || table != "" {
				if table != "" && !slices.Contains(got.Tables(), table) {
					return exit.Usagef("--table %s is unknown: use one of %s", table, strings.Join(got.Tables(), ", "))
				}
				return got.WriteRows(a.Out, table)
			}
			if !a.Format.ForPeople() {
				return a.Format.Value(a.Out, got.Meta)
			}
			return say(a, got)
		},
	}
	c.Flags().BoolVar(&tables, "tables", false, "print the rows of every table as JSON lines")
	c.Flags().StringVar(&table, "table", "", "print the rows of one table")
	return c
}

func say(a *app.App, got *archive.Archive) error {
	m := got.Meta
	line := func(head, format string, args ...any) {
		_, _ = fmt.Fprintf(a.Out, "%-12s %s\n", head, fmt.Sprintf(format, args...))
	}
	line("made", "%s (%s ago) by %s, build %s", m.CreatedAt.UTC().Format(time.RFC3339), output.Span(a.Now().Sub(m.CreatedAt)), m.NodeID, m.Build)
	line("position", "index %d, term %d, fencing term %d, feature level %d", m.Index, m.Term, m.FencingTerm, m.FeatureLevel)
	line("group", "%s%s", m.ClusterUUID, before(m.PreviousUUIDs))
	for _, p := range m.Configuration {
		line("member", "%s at %s, %s", p.NodeID, p.Address, p.Suffrage)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Counts)) {
		if m.Counts[name] > 0 {
			line("rows", "%d %s", m.Counts[name], name)
		}
	}
	line("state", "%d bytes, hash %s", got.Bytes, got.Hash())
	return nil
}

func before(uuids []string) string {
	if len(uuids) == 0 {
		return ""
	}
	return ", before: " + strings.Join(uuids, ", ")
}

func newVerify(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "verify FILE", Args: cobra.ExactArgs(1), Short: "Verify the checksums and rules of an archive; exit code 4 if it cannot be restored", Example: "  bigfleet snapshot verify backup.tar",
		RunE: func(_ *cobra.Command, args []string) error {
			got, err := open(a, args[0])
			if err != nil {
				return err
			}
			if !a.Format.ForPeople() {
				return a.Format.Value(a.Out, file{Path: args[0], Index: got.Meta.Index, Bytes: got.Bytes, StateHash: got.Hash()})
			}
			_, err = fmt.Fprintf(a.Out, "ok: index %d, %d bytes, state hash %s\n", got.Meta.Index, got.Bytes, got.Hash())
			return err
		},
	}
}

func newRestore(a *app.App) *cobra.Command {
	var r archive.Restoration
	c := a.Mutates(&cobra.Command{
		Use: "restore FILE", Args: cobra.ExactArgs(1), Short: "Restore an archive into the data directory of a stopped replica",
		Long: "Use it when the whole group is lost. The restored replica is the only voter; it has a new cluster UUID and a fencing term above all earlier ones.\n" +
			"Do not use it for a single lost replica: start that one with an empty directory, and it joins again.",
		Example: "  bigfleet snapshot restore backup.tar --data-dir /var/lib/bigfleet --node-id coordinator-0 --raft-advertise coordinator-0.bigfleet:7791 --reason 'the site is gone'",
		RunE: func(_ *cobra.Command, args []string) error {
			if r.FenceStride == 0 { // to a Restoration that means the default; on a command line it means what it says
				return exit.Usagef("--fence-stride 0: it must be more than 0, or the restored group has the fencing term of the lost one")
			}
			return restore(a, args[0], r)
		},
	})
	f := c.Flags()
	f.Lookup("dry-run").Usage = "verify the archive without changing anything"
	f.Lookup("reason").Usage = "reason for the restore; recorded in the audit log of the restored group"
	f.StringVar(&r.DataDir, "data-dir", "", "data directory of the replica")
	f.StringVar(&r.NodeID, "node-id", "", "id of the replica")
	f.StringVar(&r.RaftAdvertise, "raft-advertise", "", "stable host name and port of its Raft transport")
	f.Int64Var(&r.FenceStride, "fence-stride", archive.FenceStride, "how much to raise the fencing term")
	f.Int64Var(&r.FenceAtLeast, "fence-at-least", 0, "raise the fencing term to at least this")
	for _, name := range []string{"data-dir", "node-id", "raft-advertise"} {
		_ = c.MarkFlagRequired(name) // fails only for an unknown flag
	}
	return c
}

func restore(a *app.App, path string, r archive.Restoration) error {
	r.Reason = a.Reason
	got, err := open(a, path)
	if err != nil {
		return err
	}
	if err := a.Confirm("Restores index %d of group %s, made %s ago, as the only voter %s in %s. Existing data is moved aside, not deleted.", got.Meta.Index, got.Meta.ClusterUUID,
		output.Span(a.Now().Sub(got.Meta.CreatedAt)), r.NodeID, r.DataDir); err != nil {
		return err
	}
	if a.DryRun {
		_, err := fmt.Fprintln(a.Out, "the archive is valid; nothing was changed")
		return err
	}
	done, err := archive.Restore(got, r)
	if err != nil {
		return &exit.Error{Code: exit.Refused, Message: "restore: " + err.Error(), Hint: "Stop the process that uses the directory; nothing was changed", Err: err}
	}
	if !a.Format.ForPeople() {
		return a.Format.Value(a.Out, done)
	}
	_, _ = fmt.Fprintf(a.Out, "restored index %d as group %s (before: %s), fencing term %d\n", done.Index, done.ClusterUUID, done.PreviousUUID, done.FencingTerm)
	if done.KeptDir != "" {
		_, _ = fmt.Fprintf(a.Out, "previous data was moved to %s\n", done.KeptDir)
	}
	_, err = fmt.Fprintf(a.Out, "Next: start %s first. Start every other replica with an empty data directory; it joins.\n", r.NodeID)
	return err
}
