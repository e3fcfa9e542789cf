//go:build !linux

package agent

import "errors"

func unmount(string) error { return errors.New("hosts are Linux machines") }
