// Command bigfleet-shard runs one shard.
package main

import (
	"os"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

func main() { os.Exit(process.Execute(shard.NewCommand(), os.Args[1:])) }
