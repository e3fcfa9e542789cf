package cover

import _ "planted.example/fleet/services/shard/internal/engine/planner"
