package demand

import (
	_ "planted.example/fleet/services/coordinator/fleet"
)
