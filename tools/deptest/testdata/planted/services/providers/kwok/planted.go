package kwok

import (
	_ "planted.example/fleet/services/coordinator/fleet"
)
