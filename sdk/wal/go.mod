module github.com/bigfleet-dev/bigfleet/sdk/wal

go 1.26.0
