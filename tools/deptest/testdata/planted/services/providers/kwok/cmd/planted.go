package main

import (
	_ "planted.example/fleet/services/providers/kwok/load"
)

func main() {}
