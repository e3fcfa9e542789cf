package conformance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
)

// bareFactor is how many times as long as a bare handler a provider may take on a machine that is too busy for the ceilings.
const bareFactor = 2

// bareRecord is what a bare handler keeps of a mutation: about as much as an operation is.
const bareRecord = 512

// bare serves answers that cost nothing to find: what a call of it takes is what the machine takes. A mutation waits until its record is on
// disk, as the contract wants it (PROV-12.1).
type bare struct {
	bigfleetv1alpha1connect.UnimplementedCapacityProviderHandler
	list *bigfleetv1alpha1.MachineList
	one  *machine

	mu   sync.Mutex
	file *os.File
}

func (b *bare) List(context.Context, *connect.Request[filter]) (*connect.Response[bigfleetv1alpha1.MachineList], error) {
	return connect.NewResponse(b.list), nil
}

func (b *bare) Get(context.Context, *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[machine], error) {
	return connect.NewResponse(b.one), nil
}

func (b *bare) Create(context.Context, *connect.Request[bigfleetv1alpha1.CreateRequest]) (*connect.Response[ack], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.file.Write(make([]byte, bareRecord))
	if err := errors.Join(err, b.file.Sync()); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return connect.NewResponse(&ack{Machine: b.one}), nil
}

// floor measures a bare handler that answers lists with these machines.
func (c *Case) floor(machines []*machine, measure func(bigfleetv1alpha1connect.CapacityProviderClient) time.Duration) time.Duration {
	file, err := os.CreateTemp("", "bigfleet-conformance-*")
	if err != nil {
		c.cannot("a file of the bare handler: %v", err)
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	var config net.ListenConfig
	listener, err := config.Listen(c.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		c.cannot("the port of the bare handler: %v", err)
	}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(&bare{list: &bigfleetv1alpha1.MachineList{Machines: machines}, one: machines[0], file: file}))
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	server.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Close below
	defer serving.Wait()
	defer func() { _ = server.Close() }()
	d := newDialer(Target{Addr: listener.Addr().String()})
	defer d.close()
	return measure(d.provider(nil))
}
