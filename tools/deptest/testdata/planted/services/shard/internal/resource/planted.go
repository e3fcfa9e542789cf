package resource

import (
	_ "google.golang.org/protobuf/proto"
)
