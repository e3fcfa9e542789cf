package golden

import (
	_ "os"
	_ "time"
)
