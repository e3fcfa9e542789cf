// Package certs is `bigfleet certs`. `dev` makes a throw-away CA and one certificate per identity, for trials; `secrets` is the authority
// of a fleet without another one; `follow` gives a shard its own of several keys. The management plane's chart runs both.
package certs

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// New returns the group.
func New(a *app.App) *cobra.Command {
	var ids []string
	dev := &cobra.Command{
		Use: "dev DIR", Args: cobra.ExactArgs(1),
		Short:   "Create a throw-away CA and one certificate for each identity",
		Long:    "Writes ca.crt and, for each identity, a certificate and a key that expire after 30 days. Use it for trials only: a production fleet has its own CA.",
		Example: "  bigfleet certs dev ./certs --id admin --id shard/shard-0 --id cluster/red",
		RunE:    func(_ *cobra.Command, args []string) error { return write(a, args[0], ids) },
	}
	dev.Flags().StringArrayVar(&ids, "id", []string{"admin", "readonly", "shard/shard-0", "coordinator/coordinator-0", "cluster/red"}, "identity without the prefix bigfleet://; repeatable")
	group := &cobra.Command{Use: "certs", Short: "Create certificates: files for trials, Secrets for a fleet", RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	group.AddCommand(dev, newSecrets(a), newFollow(a))
	return group
}

func write(a *app.App, dir string, ids []string) error {
	var parsed []identity.ID
	for _, text := range ids { // before anything is written
		id, err := identity.Parse("bigfleet://" + text)
		if err != nil {
			return exit.Usagef("--id %s: %v", text, err)
		}
		parsed = append(parsed, id)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("making %s: %v", dir, err), Err: err}
	}
	ca, err := devca.New("bigfleet certs dev")
	if err != nil {
		return err
	}
	for i, id := range parsed {
		name := fmt.Sprintf("%02d-%s", i, id.Kind)
		files, err := ca.Write(dir, name, devca.For(id, "localhost"))
		if err != nil {
			return &exit.Error{Code: exit.Failed, Message: fmt.Sprintf("writing %s in %s: %v", name, dir, err), Err: err}
		}
		_, _ = fmt.Fprintf(a.Out, "%s  --tls-cert %s --tls-key %s --tls-ca %s\n", id, files.Cert, files.Key, files.CA)
	}
	a.Notef("for trials only: the CA's key was not kept, and the certificates expire after 30 days")
	return nil
}
