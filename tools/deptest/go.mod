module github.com/bigfleet-dev/bigfleet/tools/deptest

go 1.26.0
