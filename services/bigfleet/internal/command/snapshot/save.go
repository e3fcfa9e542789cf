// Package snapshot is `bigfleet snapshot`: the coordinator's state as a file.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/archive"
)

func newSave(a *app.App) *cobra.Command {
	var force bool
	var keep int
	c := &cobra.Command{
		Use: "save FILE", Args: cobra.ExactArgs(1),
		Short:   "Save the coordinator's current state to a file and verify it",
		Example: "  bigfleet snapshot save backup.tar",
		RunE:    func(c *cobra.Command, args []string) error { return save(c.Context(), a, args[0], force, keep) },
	}
	c.Flags().IntVar(&keep, "keep", 0, "number of archives of this group to keep in FILE's directory; older ones are deleted; 0 keeps all")
	c.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return c
}

// save receives the state, checks its digest and rules, and only then writes the file, in one step (COORD-15.4).
func save(ctx context.Context, a *app.App, path string, force bool, keep int) error {
	if keep < 0 {
		return exit.Usagef("--keep %d is negative: give the number of archives to keep, or 0 for all", keep)
	}
	if _, err := os.Lstat(path); err == nil && !force {
		return &exit.Error{Code: exit.Refused, Message: path + " exists", Hint: "Choose another file, or overwrite it with --force"}
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() { // before anything is asked
		return exit.Usagef("directory %s for %s does not exist: create it, or choose another", filepath.Dir(path), filepath.Base(path))
	}
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	var meta, state []byte
	err = f.LeaderStream(ctx, "saving a snapshot", func(ctx context.Context, c fleet.Coordinator) error {
		meta, state, err = receive(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	if err := archive.Save(path, meta, state, force); err != nil {
		return failed("writing "+path, err)
	}
	got, err := archive.Read(path)
	if err != nil {
		return failed("reading back what was written", err)
	}
	out := file{Path: path, Index: got.Meta.Index, Bytes: got.Bytes, StateHash: got.Hash()}
	var old error
	if keep > 0 {
		if out.Kept, out.Deleted, old = keepNewest(path, keep, got.Meta); old != nil {
			old = failed("the snapshot is saved; deleting older ones", old)
		}
	}
	if !a.Format.ForPeople() {
		return errors.Join(a.Format.Value(a.Out, out), old)
	}
	_, err = fmt.Fprintf(a.Out, "%s: index %d, %d bytes, verified\n", path, out.Index, out.Bytes)
	if keep > 0 {
		_, _ = fmt.Fprintf(a.Out, "%s kept, %d deleted\n", output.Count(out.Kept, "archive"), out.Deleted)
	}
	return errors.Join(err, old)
}

func failed(what string, err error) error {
	return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("%s: %v", what, err), Err: err}
}

// receive gathers the frames and compares the digest that the last one carries. The state is small: a gigabyte at 100,000
// domains is the bound of COORD, and usual ones are a few MB.
func receive(ctx context.Context, c fleet.Coordinator) (meta, state []byte, err error) {
	stream, err := c.Core.SnapshotSave(ctx, connect.NewRequest(&bigfleetv1alpha1.SnapshotSaveRequest{}))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = stream.Close() }()
	digest := sha256.New()
	var want []byte
	for stream.Receive() {
		frame := stream.Msg()
		if m := frame.GetMetaJson(); len(m) > 0 {
			meta = bytes.Clone(m)
		}
		if len(frame.GetSha256()) > 0 {
			want = bytes.Clone(frame.GetSha256())
		}
		digest.Write(frame.GetData())
		state = append(state, frame.GetData()...)
	}
	if err := stream.Err(); err != nil {
		return nil, nil, err
	}
	if want != nil && !bytes.Equal(want, digest.Sum(nil)) {
		return nil, nil, errors.New("the snapshot was damaged in transit: its digest differs. Try again")
	}
	if meta == nil {
		return nil, nil, errors.New("the snapshot arrived without its metadata")
	}
	return meta, state, nil
}
