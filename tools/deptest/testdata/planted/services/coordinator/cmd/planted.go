package main

import (
	_ "testing"
)

func main() {}
