package protowire

import (
	_ "google.golang.org/protobuf/proto"
)
