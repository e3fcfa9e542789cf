package leak

import (
	_ "planted.example/fleet/services/kit/config"
)
