package wal

import (
	_ "google.golang.org/protobuf/proto"
)
