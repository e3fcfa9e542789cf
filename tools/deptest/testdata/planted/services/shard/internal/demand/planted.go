package demand

import (
	_ "google.golang.org/protobuf/encoding/protowire" // legal
	_ "math/rand/v2"
)
