module planted.example/fleet/sdk/wal

go 1.26.0
