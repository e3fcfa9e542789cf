// Command bigfleet-hostagent runs on a host of bigfleet-provider-hosts. See package agent.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/hosts/agent"

func main() { agent.Main() }
