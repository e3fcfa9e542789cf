// Command bigfleet tries, runs and questions BigFleet. Installed as kubectl-bigfleet it is `kubectl bigfleet`.
package main

import "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"

func main() { cli.Program() }
