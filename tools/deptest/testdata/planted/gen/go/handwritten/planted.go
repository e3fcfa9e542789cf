package handwritten

import (
	_ "planted.example/fleet/sdk/identity/devca"
)
