package main

import (
	_ "planted.example/fleet/sdk/otlp/exporter"
)

func main() {}
