package harness

import (
	_ "planted.example/fleet/e2e/fixture"
)
