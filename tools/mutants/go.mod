module github.com/bigfleet-dev/bigfleet/tools/mutants

go 1.26.0
