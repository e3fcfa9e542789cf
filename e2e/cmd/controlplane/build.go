package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane/build"
)

func newBuild() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Compile the programs that this machine lacks and print their paths",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := build.Ensure(cmd.Context(), build.Config{Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			for _, path := range []string{b.Etcd, b.APIServer, b.ControllerManager, b.Scheduler, b.Kwok, b.Kubectl} {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
}
