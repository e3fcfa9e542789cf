package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
	"connectrpc.com/validate"
)

const (
	patience        = 15 * time.Second // of one wait for a host; the SDK repeats it until the limit of the transition
	requestBytesMax = 256 << 10        // a report with 32 remains has 12 KiB
	openWaitMax     = 55 * time.Second
)

// agentServer is where agents report and take tasks. It keeps the last report of each host, in memory alone: agents report again.
type agentServer struct {
	inventory *inventory
	log       *slog.Logger
	news      func() // a host changed its phase; must not block

	mu    sync.Mutex
	hosts map[string]*place
}

// place is what the server knows of one host.
type place struct {
	report *pb.ReportHostRequest
	at     time.Time
	task   *pb.ReportHostResponse // waits to be taken; nil: none
	change chan struct{}          // closed when anything of it changes
}

func newAgentServer(v *inventory, log *slog.Logger, news func()) *agentServer {
	return &agentServer{inventory: v, log: log, news: news, hosts: map[string]*place{}}
}

func (d *agentServer) place(host string) *place {
	p := d.hosts[host]
	if p == nil {
		p = &place{change: make(chan struct{})}
		d.hosts[host] = p
	}
	return p
}

func (p *place) changed() {
	close(p.change)
	p.change = make(chan struct{})
}

// last is the newest report of a host, nil if there was none since the start.
func (d *agentServer) last(host string) (*pb.ReportHostRequest, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.hosts[host]; p != nil {
		return p.report, p.at
	}
	return nil, time.Time{}
}

// ReportHost implements HostAgent.
func (d *agentServer) ReportHost(ctx context.Context, req *connect.Request[pb.ReportHostRequest]) (*connect.Response[pb.ReportHostResponse], error) {
	r := req.Msg
	if own, secure := ctx.Value(hostKey{}).(string); secure && own != r.GetHost() {
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("the certificate is for host %q, but the report is from %q", own, r.GetHost()))
	}
	if d.inventory.named(r.GetHost()) == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("the inventory has no host %q: add it, or correct the agent's name", r.GetHost()))
	}
	d.mu.Lock()
	p := d.place(r.GetHost())
	before := p.report
	p.report, p.at = r, time.Now()
	if before == nil || before.GetPhase() != r.GetPhase() || before.GetOperationId() != r.GetOperationId() || before.GetProblem() != r.GetProblem() {
		p.changed()
		d.news()
		level := slog.LevelInfo
		if before == nil && r.GetProblem() == "" {
			level = slog.LevelDebug // after a start all hosts report at once, and the metric counts them
		}
		d.log.Log(ctx, level, "host", "host", r.GetHost(), "phase", phaseName(r.GetPhase()), "cluster", r.GetClusterId(), "operation", r.GetOperationId(),
			"step", r.GetStep(), "problem", r.GetProblem(), "remains", strings.Join(r.GetRemains(), ", "))
	}
	d.mu.Unlock()
	wait := time.NewTimer(min(time.Duration(r.GetWaitMillis())*time.Millisecond, openWaitMax))
	defer wait.Stop()
	for {
		d.mu.Lock()
		task, change, current := p.task, p.change, p.report == r
		d.mu.Unlock()
		if !current {
			return connect.NewResponse(&pb.ReportHostResponse{}), nil // a newer report holds the place
		}
		if task != nil && taskID(task) != r.GetOperationId() {
			return connect.NewResponse(task), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
			return connect.NewResponse(&pb.ReportHostResponse{}), nil
		case <-change:
		}
	}
}

func taskID(t *pb.ReportHostResponse) string {
	if c := t.GetConfigure(); c != nil {
		return c.GetOperationId()
	}
	return t.GetReset_().GetOperationId()
}

// do gives a host a task and returns when the host says how it ended. The same task again waits for the same end.
func (d *agentServer) do(ctx context.Context, host string, t *pb.ReportHostResponse, done pb.HostPhase) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := taskID(t)
	d.mu.Lock()
	p := d.place(host)
	p.task = t
	p.changed()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.task == t {
			p.task = nil // no call waits for it: it must not be taken later
		}
	}()
	for {
		d.mu.Lock()
		r, at, change := p.report, p.at, p.change
		d.mu.Unlock()
		if r != nil && r.GetOperationId() == id {
			switch {
			case r.GetProblem() != "":
				return problemOf(host, r)
			case r.GetPhase() == done:
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return provider.RetryAfter(10*time.Millisecond, waiting(host, id, r, at))
		case <-change:
		}
	}
}

// waiting says what a host was last heard to do.
func waiting(host, id string, r *pb.ReportHostRequest, at time.Time) error {
	switch {
	case r == nil:
		return fmt.Errorf("the agent of host %s has not reported since this provider started", host)
	case r.GetOperationId() != id:
		return fmt.Errorf("the agent of host %s has not taken the task; it last reported %s ago", host, time.Since(at).Round(time.Second))
	}
	return fmt.Errorf("host %s is %s, step %q; it last reported %s ago", host, phaseName(r.GetPhase()), r.GetStep(), time.Since(at).Round(time.Second))
}

func problemOf(host string, r *pb.ReportHostRequest) error {
	text := fmt.Sprintf("host %s: %s", host, r.GetProblem())
	if left := r.GetRemains(); len(left) > 0 {
		text += "; left: " + strings.Join(left[:min(5, len(left))], ", ")
	}
	if strings.HasPrefix(r.GetProblem(), "configure is refused") {
		return provider.Bootstrap(errors.New(text))
	}
	return errors.New(text)
}

func phaseName(p pb.HostPhase) string {
	return strings.ToLower(strings.TrimPrefix(p.String(), "HOST_PHASE_"))
}

// serve listens for agents. Plaintext is served to loopback alone.
func (d *agentServer) serve(addr string, files identity.Files) (*http.Server, net.Addr, <-chan error, error) {
	secure, err := files.Enabled()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agents' port: %w", err)
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agents' port (--agent-addr): %w", err)
	}
	mux := http.NewServeMux()
	path, handler := bigfleetv1alpha1connect.NewHostAgentHandler(d, connect.WithInterceptors(validate.NewInterceptor()), connect.WithReadMaxBytes(requestBytesMax))
	mux.Handle(path, d.known(handler, secure))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(!secure)
	server := &http.Server{
		Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	if secure {
		source, err := identity.Load(files, identity.Options{})
		if err != nil {
			return nil, nil, nil, errors.Join(fmt.Errorf("agents' port: %w", err), listener.Close())
		}
		server.TLSConfig = source.ServerConfig()
	} else if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return nil, nil, nil, errors.Join(fmt.Errorf("the agents' port %s needs TLS files: boot data is secret, and only loopback is served without", addr), listener.Close())
	}
	ended := make(chan error, 1)
	go func() {
		if secure {
			ended <- server.ServeTLS(listener, "", "")
		} else {
			ended <- server.Serve(listener)
		}
	}()
	return server, listener.Addr(), ended, nil
}

// hostKey carries the name in the certificate of an agent.
type hostKey struct{}

// known lets agents in whose certificate names one host, before their request is read.
func (d *agentServer) known(next http.Handler, secure bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if secure {
			id, err := identity.FromState(*r.TLS)
			if err != nil || id.Kind != identity.Host {
				http.Error(w, "only an agent with a certificate of the form bigfleet://host/<name> may call this port", http.StatusForbidden)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), hostKey{}, id.Name))
		}
		next.ServeHTTP(w, r)
	})
}
