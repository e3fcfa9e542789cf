module github.com/bigfleet-dev/bigfleet/tools/contract

go 1.26.0

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2
	github.com/bigfleet-dev/bigfleet/gen/go v0.0.0
	google.golang.org/protobuf v1.36.12
)

replace github.com/bigfleet-dev/bigfleet/gen/go => ../../gen/go
