package engine

import (
	_ "planted.example/fleet/services/shard/internal/clock"
)
