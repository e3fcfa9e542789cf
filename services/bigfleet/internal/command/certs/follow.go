package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// followEvery is how often the files are compared: kubelet brings a renewed Secret within about a minute.
const followEvery = 5 * time.Second

func newFollow(a *app.App) *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "follow FROM TO", Args: cobra.ExactArgs(2),
		Short: "Copy one certificate, its key and its CA to another directory, and each renewal of them",
		Long: `Waits until the directory FROM has tls.crt, tls.key and ca.crt, copies them to the directory TO, and copies them again whenever they change. A certificate
and a key that do not belong together are not copied. The chart of the management plane runs this beside each of several shards: a StatefulSet cannot
mount one Secret in each Pod, so a container that runs nothing else mounts the keys of all, and the shard gets its own.`,
		Example: "  bigfleet certs follow /etc/bigfleet/keys/shard-0 /etc/bigfleet/tls/shard-0 --once",
		RunE: func(c *cobra.Command, args []string) error {
			f := follower{from: args[0], to: args[1], say: func(text string) { a.Notef("%s", text) }}
			return f.run(c.Context(), once, followEvery)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "end when the files were copied for the first time")
	return c
}

// followed are the names of the files, the certificate last: a process that looks in between finds a pair that does not fit, and looks again.
var followed = []string{"ca.crt", "tls.key", "tls.crt"}

// follower keeps the files of one directory in another.
type follower struct {
	from, to string
	say      func(string)
	said     string // last, so that it is said once
}

// run copies until the context ends, or once.
func (f *follower) run(ctx context.Context, once bool, every time.Duration) error {
	if err := os.MkdirAll(f.to, 0o750); err != nil {
		return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("making %s: %v", f.to, err), Err: err}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		changed, err := f.copy()
		switch {
		case err != nil:
			f.print(err.Error())
		case changed:
			f.print("copied to " + f.to)
		}
		if once && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *follower) print(text string) {
	if text != f.said {
		f.said = text
		f.say(text)
	}
}

// copy brings the files up to date and reports whether any was not.
func (f *follower) copy() (changed bool, err error) {
	data := map[string][]byte{}
	for _, name := range followed {
		if data[name], err = os.ReadFile(filepath.Join(f.from, name)); errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("waiting for %s", filepath.Join(f.from, name))
		} else if err != nil {
			return false, err
		}
	}
	if _, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"]); err != nil {
		return false, fmt.Errorf("not copied: tls.crt and tls.key of %s: %w", f.from, err)
	}
	for _, name := range followed {
		to := filepath.Join(f.to, name)
		if was, err := os.ReadFile(to); err == nil && bytes.Equal(was, data[name]) {
			continue
		}
		if err := replace(to, data[name]); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// replace puts a file in the place of another at once. The group may read it: Pods share one.
func replace(path string, data []byte) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(next, data, 0o440); err != nil {
		return err
	}
	return os.Rename(next, path)
}
