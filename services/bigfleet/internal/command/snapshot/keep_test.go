package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
)

// COORD-15.4: the newest archives of a group stay, the one just written among them whatever its clock says; what is not an archive,
// or one of another group, is never deleted.
func TestKeepNewest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, group string, minute int) archive.Meta {
		m := archive.Meta{ClusterUUID: group, PreviousUUIDs: []string{"before"}, CreatedAt: time.Unix(int64(60*minute), 0)}
		text, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := archive.Save(filepath.Join(dir, name), text, []byte("state"), true); err != nil {
			t.Fatal(err)
		}
		return m
	}
	write("first.tar", "before", 1) // of the group that this one was restored from
	write("second.tar", "mine", 2)
	write("third.tar", "mine", 3)
	write("stranger.tar", "other", 1)
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("not an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := write("now.tar", "mine", 0)
	left := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, step := range []struct {
		keep, kept, deleted int
		left                []string
	}{
		{4, 4, 0, []string{"first.tar", "notes.txt", "now.tar", "second.tar", "stranger.tar", "third.tar"}},
		{2, 2, 2, []string{"notes.txt", "now.tar", "stranger.tar", "third.tar"}},
		{1, 1, 1, []string{"notes.txt", "now.tar", "stranger.tar"}},
	} {
		kept, deleted, err := keepNewest(filepath.Join(dir, "now.tar"), step.keep, now)
		if err != nil || kept != step.kept || deleted != step.deleted || !slices.Equal(left(), step.left) {
			t.Errorf("keep %d: %d kept, %d deleted, %v: %v", step.keep, kept, deleted, err, left())
		}
	}
}
