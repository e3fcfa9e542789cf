// Package snapshot is `bigfleet snapshot`: the coordinator's state as a file.
package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// NewSave returns `snapshot save DIR`.
func NewSave(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "save DIR", Args: cobra.ExactArgs(1),
		Short:   "Stream the newest snapshot of the coordinator into a directory",
		Example: "  bigfleet snapshot save ./backup",
		RunE:    func(c *cobra.Command, args []string) error { return save(c.Context(), a, args[0]) },
	}
}

// save writes meta.json and state.bin, each in one step, after the digest was checked: a directory holds a whole snapshot or none.
func save(ctx context.Context, a *app.App, dir string) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return failed("making "+dir, err)
	}
	state, err := os.CreateTemp(dir, "state-*.part")
	if err != nil {
		return failed("writing in "+dir, err)
	}
	defer func() { _ = os.Remove(state.Name()) }() // renamed when all went well
	defer func() { _ = state.Close() }()
	var meta []byte
	var size int64
	err = f.LeaderStream(ctx, "saving a snapshot", func(ctx context.Context, c fleet.Coordinator) error {
		meta, size, err = receive(ctx, c, state)
		return err
	})
	if err != nil {
		return err
	}
	if err := state.Sync(); err != nil {
		return failed("writing in "+dir, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.json"), meta, 0o600); err != nil {
		return failed("writing in "+dir, err)
	}
	if err := os.Rename(state.Name(), filepath.Join(dir, "state.bin")); err != nil {
		return failed("writing in "+dir, err)
	}
	_, err = fmt.Fprintf(a.Out, "%s: %d bytes, digest checked\n", dir, size)
	return err
}

func failed(what string, err error) error {
	return &exit.Error{Code: exit.Failed, Say: fmt.Sprintf("%s: %v", what, err), Err: err}
}

// receive copies the frames and compares the digest that the last one carries.
func receive(ctx context.Context, c fleet.Coordinator, state *os.File) (meta []byte, size int64, err error) {
	if _, err := state.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	if err := state.Truncate(0); err != nil {
		return nil, 0, err
	}
	stream, err := c.Core.SnapshotSave(ctx, connect.NewRequest(&bigfleetv1alpha1.SnapshotSaveRequest{}))
	if err != nil {
		return nil, 0, err
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
		n, err := state.Write(frame.GetData())
		size += int64(n)
		if err != nil {
			return nil, 0, err
		}
	}
	if err := stream.Err(); err != nil {
		return nil, 0, err
	}
	if want != nil && !bytes.Equal(want, digest.Sum(nil)) {
		return nil, 0, fmt.Errorf("the snapshot arrived damaged: its digest differs. Try again")
	}
	if meta == nil {
		return nil, 0, fmt.Errorf("the snapshot arrived without its metadata")
	}
	return meta, size, nil
}
