package actuator

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
)

// List asks a provider for machines and leaves their records encoded.
type List func(context.Context, *connect.Request[pb.ListFilter]) (*connect.Response[ingest.Answer], error)

// NewList is the List of the provider at baseURL, beside a generated client for everything else.
func NewList(http connect.HTTPClient, baseURL string, options ...connect.ClientOption) List {
	method := pb.File_bigfleet_v1alpha1_provider_proto.Services().ByName("CapacityProvider").Methods().ByName("List")
	return connect.NewClient[pb.ListFilter, ingest.Answer](http, baseURL+bigfleetv1alpha1connect.CapacityProviderListProcedure,
		connect.WithSchema(method), connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithClientOptions(options...),
		connect.WithCodec(answers{})).CallUnary
}

// answers is the codec of protobuf, for messages and for an Answer.
type answers struct{}

func (answers) Name() string { return "proto" }

func (answers) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }

func (answers) Unmarshal(raw []byte, into any) error {
	if a, is := into.(*ingest.Answer); is {
		return a.Unmarshal(raw)
	}
	return proto.Unmarshal(raw, into.(proto.Message))
}
