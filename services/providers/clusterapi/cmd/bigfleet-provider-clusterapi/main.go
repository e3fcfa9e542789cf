// Command bigfleet-provider-clusterapi serves Machines of Cluster API as machines. See package clusterapi.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/clusterapi"

func main() { clusterapi.Main() }
