module github.com/bigfleet-dev/bigfleet/services/coordinator

go 1.26.0

require (
	github.com/bigfleet-dev/bigfleet/gen/go v0.0.0
	github.com/bigfleet-dev/bigfleet/sdk/identity v0.0.0
	github.com/google/go-cmp v0.7.0
	github.com/hashicorp/go-hclog v1.6.3
	github.com/hashicorp/go-immutable-radix/v2 v2.1.0
	github.com/hashicorp/raft v1.8.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2 // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/hashicorp/go-immutable-radix v1.3.1 // indirect
	github.com/hashicorp/go-metrics v0.7.0 // indirect
	github.com/hashicorp/go-msgpack/v2 v2.1.5 // indirect
	github.com/hashicorp/golang-lru v1.0.2 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.0 // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.14 // indirect
	golang.org/x/exp v0.0.0-20260820142414-ca536658362e // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/bigfleet-dev/bigfleet/gen/go => ../../gen/go
	github.com/bigfleet-dev/bigfleet/sdk/identity => ../../sdk/identity
	github.com/bigfleet-dev/bigfleet/services/kit => ../kit
)
