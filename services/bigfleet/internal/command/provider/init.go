package provider

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/template"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

func newInit(a *app.App) *cobra.Command {
	var p template.Params
	c := &cobra.Command{
		Use: "init NAME", Args: cobra.ExactArgs(1), Short: "Create a new provider: a Go module that builds and passes the conformance suite before any edit",
		Long: `Writes a new provider into the directory NAME: a Go module with a backend, a configuration, a simulated cloud, the
conformance suite as its test, a Dockerfile, a Helm chart and a CI file. It belongs to you; nothing of BigFleet lists it.`,
		Example: "  bigfleet provider init acme --module git.example.com/infra/bigfleet-provider-acme",
		RunE: func(_ *cobra.Command, args []string) error {
			p.Name = args[0]
			return runInit(a, p)
		},
	}
	f := c.Flags()
	f.StringVar(&p.Module, "module", "", "Go module path (default example.com/bigfleet-provider-NAME)")
	f.StringVar(&p.Dir, "dir", "", "directory to write to, empty or new (default NAME)")
	f.StringVar(&p.SDKVersion, "sdk-version", "", "SDK version to require (default: that of this command)")
	f.StringVar(&p.Checkout, "checkout", "", "directory with BigFleet's source, to build against instead of a released SDK")
	return c
}

func runInit(a *app.App, p template.Params) error {
	if p.SDKVersion == "" && p.Checkout == "" {
		if p.SDKVersion = sdkVersion(); p.SDKVersion == "" {
			return &exit.Error{Code: exit.Usage, Message: "this command was built from source, so it knows no released SDK version",
				Hint: "Give --sdk-version vX.Y.Z, or --checkout DIR to build against source"}
		}
	}
	dir, files, err := template.Write(p)
	if err != nil {
		return &exit.Error{Code: exit.Usage, Message: err.Error(), Err: err}
	}
	for _, name := range files {
		if _, err := fmt.Fprintf(a.Out, "%s/%s\n", strings.TrimSuffix(dir, "/"), name); err != nil {
			return err
		}
	}
	a.Notef("\nNext:\n  cd %s && go mod tidy && go test ./...\nThen write the client of your cloud in dial.go. docs/providers.md explains each step.", dir)
	return nil
}

// sdkVersion is the released version of the SDK in this binary, "" for a build from a checkout.
func sdkVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/bigfleet-dev/bigfleet/sdk/provider" && m.Replace == nil && semver.IsValid(m.Version) && semver.Compare(m.Version, "v0.0.0") > 0 {
			return m.Version
		}
	}
	return ""
}
