// Command bigfleet-provider-hosts serves existing Linux hosts as machines. See package hosts.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/hosts"

func main() { hosts.Main() }
