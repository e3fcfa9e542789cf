package clean

import (
	_ "planted.example/fleet/gen/go/v1"
)
