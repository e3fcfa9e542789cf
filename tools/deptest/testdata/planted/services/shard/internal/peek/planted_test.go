package peek

import _ "planted.example/fleet/services/shard/internal/engine/reference" // allowed: a test
