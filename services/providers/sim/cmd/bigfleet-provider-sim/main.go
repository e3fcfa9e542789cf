// Command bigfleet-provider-sim serves a simulated cloud. See package sim.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/sim"

func main() { sim.Main() }
