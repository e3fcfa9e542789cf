package peer

import (
	_ "planted.example/fleet/services/coordinator/fleet"
)
