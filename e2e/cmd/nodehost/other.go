//go:build !linux

package main

func main() { panic("nodehost needs Linux") }
