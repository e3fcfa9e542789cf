package conformance_test

import (
	"context"
	"fmt"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// Execute judges a provider at an address and returns the report. Inside a Go test, Run does the same as subtests.
func ExampleExecute() {
	report, err := conformance.Execute(context.Background(), conformance.Target{
		Addr: "127.0.0.1:1", Profiles: []conformance.Profile{conformance.Core, conformance.Cloud},
	}, conformance.Options{Seed: 7})
	if err != nil {
		fmt.Println("nobody is there")
		return
	}
	fmt.Println(report.Verdict)
	// Output: nobody is there
}
