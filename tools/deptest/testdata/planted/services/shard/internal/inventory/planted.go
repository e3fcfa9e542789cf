package inventory

import (
	_ "k8s.io/api/core"
	_ "os"
)
