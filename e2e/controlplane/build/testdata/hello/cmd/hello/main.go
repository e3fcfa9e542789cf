// Command hello is what the tests of package build compile in place of Kubernetes.
package main

import "fmt"

var version = "unknown"

func main() { fmt.Println("hello", version) }
