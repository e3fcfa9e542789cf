// Command bigfleet-provider-kwok serves machines whose Nodes kwok keeps Ready. See package kwok.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/kwok"

func main() { kwok.Main() }
