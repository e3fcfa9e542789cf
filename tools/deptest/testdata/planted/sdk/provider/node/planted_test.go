package node

import (
	_ "k8s.io/api/core"
)
