module github.com/bigfleet-dev/bigfleet/services/shard

go 1.26.0

require (
	github.com/bigfleet-dev/bigfleet/gen/go v0.0.0
	go.etcd.io/bbolt v1.5.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2 // indirect
	golang.org/x/sys v0.45.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/bigfleet-dev/bigfleet/gen/go => ../../gen/go
