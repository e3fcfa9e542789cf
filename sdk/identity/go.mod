module github.com/bigfleet-dev/bigfleet/sdk/identity

go 1.26.0
