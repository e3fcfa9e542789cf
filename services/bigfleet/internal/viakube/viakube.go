// Package viakube opens connections to the Pods of the management cluster through its API server, so that a laptop with a
// kubeconfig needs no other way in (OPS-4.7).
//
// Each connection is a port-forward of its own, as `kubectl port-forward` makes it: the person needs the right to create
// pods/portforward in the namespace. Addresses stay what they are inside the cluster: of POD.SERVICE.NAMESPACE.svc:PORT the
// first and the third part say where to go, so certificates are checked against the very names that the servers have.
//
// It decides nothing and keeps no state. Start at Dialer.
package viakube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // deprecated, and still what client-go speaks
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
)

// Namespace is where the management plane is installed unless somebody says otherwise.
const Namespace = "bigfleet-system"

// protocol is what kubelets and API servers call a port-forward.
const protocol = "portforward.k8s.io"

// coordinators selects the coordinator's Pods as the charts label them.
const coordinators = "app.kubernetes.io/part-of=bigfleet,app.kubernetes.io/component=coordinator"

// CoordinatorPort is where replicas are asked.
const CoordinatorPort = "7790"

// Way leads through one API server.
type Way struct {
	cfg       *rest.Config
	client    coreclient.CoreV1Interface
	namespace string
}

// New prepares the way; it dials nothing.
func New(cfg *rest.Config, namespace string) (*Way, error) {
	client, err := coreclient.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Way{cfg: cfg, client: client, namespace: namespace}, nil
}

// Coordinators are the addresses of the replicas that run.
func (w *Way) Coordinators(ctx context.Context) ([]string, error) {
	pods, err := w.client.Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: coordinators})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning {
			out = append(out, net.JoinHostPort(p.Name+".bigfleet-coordinator."+w.namespace+".svc", CoordinatorPort))
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return nil, fmt.Errorf("no Pod of namespace %s runs with the labels %s", w.namespace, coordinators)
	}
	return out, nil
}

// pod is what an address means: POD.SERVICE.NAMESPACE.svc, or a Pod of the way's namespace.
func (w *Way) pod(address string) (namespace, name, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", "", err
	}
	parts := strings.Split(host, ".")
	switch {
	case net.ParseIP(host) != nil || parts[0] == "":
		return "", "", "", fmt.Errorf("%s names no Pod; through an API server an address is POD.SERVICE.NAMESPACE.svc:PORT", address)
	case len(parts) >= 3:
		return parts[2], parts[0], port, nil
	}
	return w.namespace, parts[0], port, nil
}

// Dial opens one connection; it fits where net.Dialer does.
func (w *Way) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	namespace, name, port, err := w.pod(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	transport, upgrader, err := spdy.RoundTripperFor(w.cfg)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	url := w.client.RESTClient().Post().Resource("pods").Namespace(namespace).Name(name).SubResource("portforward").URL()
	type opened struct {
		conn net.Conn
		err  error
	}
	done := make(chan opened, 1)
	go func() { // the upgrade knows no context
		conn, err := forward(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), port, address)
		done <- opened{conn, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("port-forward to Pod %s/%s: %w", namespace, name, o.err)}
		}
		return o.conn, nil
	case <-ctx.Done():
		go func() {
			if o := <-done; o.conn != nil {
				_ = o.conn.Close()
			}
		}()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
}

// forward upgrades one connection to the API server and opens the two streams of a port-forward in it.
func forward(d httpstream.Dialer, port, address string) (net.Conn, error) {
	streams, _, err := d.Dial(protocol)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	h.Set(corev1.StreamType, corev1.StreamTypeError)
	h.Set(corev1.PortHeader, port)
	h.Set(corev1.PortForwardRequestIDHeader, "0")
	failures, err := streams.CreateStream(h)
	if err == nil {
		_ = failures.Close() // only the other side writes there
		h.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = streams.CreateStream(h); err == nil {
			c := &conn{Stream: data, all: streams, address: podAddress(address), failed: make(chan struct{})}
			go c.listen(failures)
			return c, nil
		}
	}
	_ = streams.Close()
	return nil, err
}

// conn is the data stream of one port-forward as a connection.
type conn struct {
	httpstream.Stream
	all     httpstream.Connection
	address podAddress
	once    sync.Once

	failed chan struct{} // closed when the other side has said all it will about failures
	why    string
}

// listen hears why the other side cannot continue.
func (c *conn) listen(failures io.Reader) {
	defer close(c.failed)
	said, _ := io.ReadAll(io.LimitReader(failures, 1<<10))
	if c.why = strings.TrimSpace(string(said)); c.why != "" {
		_ = c.Close()
	}
}

// Read returns what the other side said of its failure in place of a bare end.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err != nil {
		select {
		case <-c.failed:
			if c.why != "" {
				err = fmt.Errorf("port-forward: %s", c.why)
			}
		default:
		}
	}
	return n, err
}

func (c *conn) Close() (err error) {
	c.once.Do(func() {
		_ = c.Reset()
		err = c.all.Close()
	})
	return err
}

type podAddress string

func (podAddress) Network() string  { return "port-forward" }
func (a podAddress) String() string { return string(a) }

func (c *conn) LocalAddr() net.Addr  { return podAddress("api-server") }
func (c *conn) RemoteAddr() net.Addr { return c.address }

// A stream knows no deadlines. Callers bound their calls with contexts, which close the connection.
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
