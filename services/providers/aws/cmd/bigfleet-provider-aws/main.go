// Command bigfleet-provider-aws serves EC2 instances as machines. See package aws.
package main

import "github.com/bigfleet-dev/bigfleet/services/providers/aws"

func main() { aws.Main() }
