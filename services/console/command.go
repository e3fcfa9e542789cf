package console

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
)

// NewCommand returns the program bigfleet-console. edit changes the configuration behind the flags, for programs that wrap it; they may add
// flags of their own.
func NewCommand(edit ...func(*Config) error) *cobra.Command {
	var shared config.Shared
	var c Config
	cmd := &cobra.Command{
		Use:   "bigfleet-console",
		Short: "Run the web UI: what waits and why, which machines exist, what they cost, and what happened",
		Args:  config.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	fs := cmd.Flags()
	shared.Bind(fs, ":8700")
	fs.StringVar(&c.Listen, "listen", ListenDefault, "listen address for browsers; one that is not loopback needs --listen-cert or --behind-proxy")
	fs.StringVar(&c.ListenCert, "listen-cert", "", "certificate for browsers, PEM, with intermediates; read again when it changes")
	fs.StringVar(&c.ListenKey, "listen-key", "", "private key of --listen-cert, PEM")
	fs.BoolVar(&c.BehindProxy, "behind-proxy", false, "a proxy in front ends TLS and knows who asks: serve plaintext on an address that is not loopback")
	fs.StringSliceVar(&c.Hosts, "hosts", nil, "names under which browsers reach the console; others are refused. Empty means any, and on loopback without TLS only names of this host")
	fs.StringSliceVar(&c.Coordinators, "coordinator", []string{CoordinatorDefault}, "addresses of the coordinator's replicas; it lists the shards")
	fs.StringSliceVar(&c.Shards, "shard", nil, "id=host:port of a shard that no coordinator lists; repeatable")
	fs.IntVar(&c.Viewers, "viewers", ViewersDefault, "live streams of browsers at a time; a page holds at most three")
	fs.BoolVar(&c.AllowWrites, "allow-writes", false, "people whom --writers names may give orders to shards: pause, resume, retry a machine, clear backoffs, accept a held report")
	fs.StringVar(&c.AuthHeader, "auth-header", "", "header in which the proxy names the user; it must replace what the browser sent")
	fs.StringSliceVar(&c.Writers, "writers", nil, "users who may give orders; * means every user whom the proxy names")
	fs.StringVar(&c.OrderTLS.Cert, "admin-cert", "", "certificate of bigfleet://admin for the orders, PEM; reads go under --tls-cert")
	fs.StringVar(&c.OrderTLS.Key, "admin-key", "", "private key of --admin-cert, PEM")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{Role: "console", Command: cmd, Shared: &shared, Check: func() error {
			probe := c
			probe.TLS = shared.TLS
			return probe.check()
		}}.Load()
		if err != nil || printed {
			return err
		}
		c.TLS = shared.TLS
		return role.Run(cmd.Context(), role.Config{Component: "console", Shared: shared}, func(ctx context.Context, o role.Opened) error {
			c.Telemetry, c.Ops = o.Telemetry, o.Ports
			for _, change := range edit {
				if err := change(&c); err != nil {
					return config.Fail(err)
				}
			}
			return Run(ctx, c)
		})
	}
	return cmd
}
