package load

import (
	_ "planted.example/fleet/services/kit/bench"
)
