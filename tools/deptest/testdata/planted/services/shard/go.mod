module planted.example/fleet/services/shard

go 1.26.0

require planted.example/fleet/services/coordinator v0.0.0
