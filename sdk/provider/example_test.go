package provider_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"connectrpc.com/connect"
)

// shed is the least a backend is: four methods over a cloud that is a map.
type shed struct {
	mu    sync.Mutex
	hosts map[string]provider.Host
}

func (s *shed) Describe(_ context.Context, found func(provider.Host) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if err := found(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *shed) Create(_ context.Context, op provider.CreateOp) (provider.Host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The operation id names the host, so that the same id twice is one host.
	h := provider.Host{Ref: "shed://" + op.ID, MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}
	s.hosts[h.Ref] = h
	return h, nil
}

func (s *shed) Configure(context.Context, provider.ConfigureOp) error { return nil }
func (s *shed) Drain(context.Context, provider.DrainOp) error         { return nil }

// offering is the quota: three slots of one kind.
func offering() provider.Offering {
	return provider.Offering{Name: "bike", Count: 3, Attributes: provider.Attributes{
		InstanceType: "bike.large", Zone: "shed-1", CapacityType: provider.OnDemand, PricePerHour: 0.04,
		Resources: map[string]string{"cpu": "2", "memory": "4Gi"},
	}}
}

// A provider is a backend with options. Run serves it until its context ends.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	p, err := provider.New("shed", &shed{hosts: map[string]provider.Host{}},
		provider.WithOfferings(offering()),
		provider.WithStore(store.Memory()), // WithStateFile keeps what it knows
		provider.WithReadiness(provider.NoReadiness()),
		provider.WithListener(l),
		provider.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-p.Ready()

	transport := &http.Transport{DisableKeepAlives: true}
	client := bigfleetv1alpha1connect.NewCapacityProviderClient(&http.Client{Transport: transport}, "http://"+p.Addr())
	id := "shed-bike-0"
	ack, err := client.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id}))
	if err != nil {
		panic(err)
	}
	fmt.Println(ack.Msg.GetMachine().GetState())
	for {
		m, err := client.Get(ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: id}))
		if err != nil {
			panic(err)
		}
		if m.Msg.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE {
			fmt.Println(m.Msg.GetState(), m.Msg.GetInstanceType())
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// MACHINE_STATE_CREATING
	// MACHINE_STATE_IDLE bike.large
	// <nil>
}

// Errors say what they mean, and the SDK acts on it: repeat, offer the slot again later, or end the operation.
func ExampleClassOf() {
	for _, err := range []error{
		provider.Transient(fmt.Errorf("503")), provider.RetryAfter(time.Second, fmt.Errorf("429")), provider.OutOfCapacity(fmt.Errorf("no bikes")),
		provider.Quota(fmt.Errorf("at most 10")), provider.Credentials(fmt.Errorf("401")), fmt.Errorf("anything else"),
	} {
		class, after := provider.ClassOf(err)
		fmt.Println(err, class, after)
	}
	// Output:
	// 503 transient 0s
	// 429 transient 1s
	// no bikes out_of_capacity 0s
	// at most 10 quota 0s
	// 401 credentials 0s
	// anything else permanent 0s
}

// Call gives a substrate call its rate limit, its retries and its metrics.
func ExampleCall() {
	backendCreate := func(ctx context.Context) error {
		return provider.Call(ctx, "shed.Unlock", func(context.Context) error {
			fmt.Println("unlock")
			return nil
		})
	}
	fmt.Println(backendCreate(context.Background()))
	// Output:
	// unlock
	// <nil>
}

// Main is a whole program: flags, configuration file, logs, ports, signals, exit codes. Command is the same for a caller
// that has its own root.
func ExampleProgram() {
	type config struct {
		Door string `yaml:"door" doc:"Which door of the shed."`
	}
	program := provider.Program[config]{
		Name: "shed", Short: "Bikes", Config: config{Door: "front"},
		Build: func(_ context.Context, s provider.Setup[config]) (provider.Backend, []provider.Option, error) {
			return &shed{hosts: map[string]provider.Host{}}, []provider.Option{provider.WithReadiness(provider.NoReadiness())}, nil
		},
		Default: func() []provider.Offering { return []provider.Offering{offering()} },
	}
	cmd := program.Command() // provider.Main(program) in func main
	cmd.SetArgs([]string{"--state", "memory", "--no-such-flag"})
	fmt.Println(provider.ExitCode(cmd.Execute()))
	// Output: 2
}
