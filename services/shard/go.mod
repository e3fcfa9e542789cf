module github.com/bigfleet-dev/bigfleet/services/shard

go 1.26.0

require (
	github.com/bigfleet-dev/bigfleet/gen/go v0.0.0
	github.com/google/go-cmp v0.7.0
	go.etcd.io/bbolt v1.5.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
	gopkg.in/inf.v0 v0.9.1
	k8s.io/apimachinery v0.36.3
	pgregory.net/rapid v1.3.0
)

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2 // indirect
	github.com/fxamacker/cbor/v2 v2.9.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
)

replace github.com/bigfleet-dev/bigfleet/gen/go => ../../gen/go
