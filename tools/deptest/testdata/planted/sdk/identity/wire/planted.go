package wire

import (
	_ "google.golang.org/protobuf/proto"
)
