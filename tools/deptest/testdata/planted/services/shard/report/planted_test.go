package report

import (
	_ "planted.example/fleet/services/kit/peer"
)
