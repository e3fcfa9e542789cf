package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// Names of renderers (OP-7.2).
const (
	Auto     = "auto"
	Template = "template"
	BuiltIn  = "builtin"
	Stub     = "stub"
)

// Limits.
const (
	inflightMax = 1024             // renders at once; beyond it requests are answered "try again" (OP-4.12)
	blobMax     = 1 << 20          // bytes; the shard takes no more
	ttlDefault  = 10 * time.Minute // of blobs, and of tokens
	ttlMargin   = time.Minute      // a token outlives the blob by this much (OP-7.13)
)

// Config is what a Renderer needs.
type Config struct {
	ClusterID      string
	Renderer       string // one of the names above; empty means auto
	TemplateFile   string
	Custom         Func          // renders in the place of everything else; nil: none (OP-7.2)
	APIServer      string        // URL that machines use
	CABundle       []byte        // PEM
	KubeletVersion string        // empty means that of the API server
	TTL            time.Duration // 0 means 10 min
	Tokens         *Tokens       // nil: no tokens can be had
	Versions       *Versions     // nil: versions are not known and not checked
	Instruments    *instruments.Instruments
	Log            *slog.Logger
}

// Func renders the boot data of one machine in code.
type Func func(ctx context.Context, d *Data) ([]byte, error)

// Renderer answers bootstrap requests. Safe for concurrent use.
type Renderer struct {
	Config
	template *template.Template
	inflight chan struct{}
}

// New reads and parses the template. A template that cannot be parsed, and a renderer that cannot work, are errors here
// and not at the first machine.
func New(c Config) (*Renderer, error) {
	if c.ClusterID == "" || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("bootstrap: ClusterID, Instruments and Log are required")
	}
	c.TTL = cmp.Or(c.TTL, ttlDefault)
	r := &Renderer{Config: c, inflight: make(chan struct{}, inflightMax)}
	kind := cmp.Or(c.Renderer, Auto)
	if kind == Auto {
		kind = BuiltIn
		if c.TemplateFile != "" {
			kind = Template
		}
	}
	text, name := "", ""
	switch {
	case c.Custom != nil:
		return r, nil
	case kind == Stub:
		text, name = stubTemplate, "stub"
	case kind == Template && c.TemplateFile == "":
		return nil, errors.New("the renderer \"template\" needs --bootstrap-template-file")
	case kind == Template:
		b, err := os.ReadFile(c.TemplateFile)
		if err != nil {
			return nil, fmt.Errorf("bootstrap template: %w", err)
		}
		text, name = string(b), "bootstrap.tmpl"
	case kind == BuiltIn:
		if c.APIServer == "" || len(c.CABundle) == 0 || c.Tokens == nil {
			return nil, errors.New("the built-in bootstrap renderer needs the API server's URL (--apiserver-url), its CA (--ca-bundle-file) and tokens; " +
				"give a template with --bootstrap-template-file, or ask for the stub with --bootstrap-renderer=stub")
		}
		text, name = builtInTemplate, "builtin"
	default:
		return nil, fmt.Errorf("--bootstrap-renderer %q: want auto, template, builtin or stub", kind)
	}
	t, err := template.New(name).Option("missingkey=error").Funcs(functions()).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("bootstrap template: %w", err)
	}
	if err := unknownNames(t.Tree); err != nil {
		return nil, fmt.Errorf("bootstrap template: %w", err)
	}
	r.template = t
	return r, nil
}

// Enter reserves a place for one render. Without a place the answer is Overloaded.
func (r *Renderer) Enter() bool {
	select {
	case r.inflight <- struct{}{}:
		return true
	default:
		return false
	}
}

// Overloaded is the answer to a request that found no place.
func (r *Renderer) Overloaded(requestID string) *pb.BootstrapBlobResponse {
	return r.fail(requestID, problem(pb.BootstrapBlobResponse_ERROR_CLASS_OVERLOADED, true, "%d bootstrap requests are already being answered", inflightMax))
}

// Answer renders the boot data of one machine, and gives the place of Enter back.
func (r *Renderer) Answer(ctx context.Context, in *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
	start := time.Now()
	defer func() {
		<-r.inflight
		r.Instruments.BootstrapDuration.Observe(time.Since(start).Seconds())
	}()
	blob, ttl, err := r.render(ctx, in)
	if err != nil {
		return r.fail(in.RequestId, err)
	}
	r.Instruments.Bootstrap.WithLabelValues("ok").Inc()
	return &pb.BootstrapBlobResponse{RequestId: in.RequestId, UserData: blob, TtlSeconds: max(1, int64(ttl/time.Second))}
}

func (r *Renderer) fail(requestID string, err error) *pb.BootstrapBlobResponse {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = problem(pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE, false, "%v", err)
	}
	result := map[pb.BootstrapBlobResponse_ErrorClass]string{
		pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE: "template", pb.BootstrapBlobResponse_ERROR_CLASS_SKEW: "skew",
		pb.BootstrapBlobResponse_ERROR_CLASS_TOKEN: "token", pb.BootstrapBlobResponse_ERROR_CLASS_OVERLOADED: "overloaded",
	}[p.Class]
	r.Instruments.Bootstrap.WithLabelValues(result).Inc()
	r.Log.Warn("boot data for a machine could not be rendered", "request", requestID, "class", result, "err", p.Say)
	return &pb.BootstrapBlobResponse{RequestId: requestID, Error: p.Say, ErrorClass: p.Class, Retryable: p.Retryable}
}

// Problem is why a blob cannot be rendered. Say is for people and holds no secret.
type Problem struct {
	Class     pb.BootstrapBlobResponse_ErrorClass
	Retryable bool
	Say       string
}

func (p *Problem) Error() string { return p.Say }

func problem(class pb.BootstrapBlobResponse_ErrorClass, retryable bool, format string, args ...any) *Problem {
	return &Problem{class, retryable, fmt.Sprintf(format, args...)}
}

func (r *Renderer) render(ctx context.Context, in *pb.BootstrapRequest) ([]byte, time.Duration, error) {
	d := r.data(ctx, in)
	if err := d.check(); err != nil {
		return nil, 0, err
	}
	if err := r.versions(ctx, d); err != nil {
		return nil, 0, err
	}
	var blob []byte
	if r.Custom != nil {
		b, err := r.Custom(ctx, d)
		if err != nil {
			return nil, 0, err
		}
		blob = b
	} else {
		var out bytes.Buffer
		if err := r.template.Execute(&out, d); err != nil {
			if p, ok := errors.AsType[*Problem](err); ok {
				return nil, 0, p
			}
			return nil, 0, err
		}
		blob = out.Bytes()
	}
	if len(blob) == 0 || len(blob) > blobMax {
		return nil, 0, problem(pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE, false, "the bootstrap template renders %d bytes; 1 to %d are allowed", len(blob), blobMax)
	}
	if d.token != nil {
		return blob, time.Until(d.token.Expires) - ttlMargin, nil
	}
	return blob, r.TTL, nil
}

// data is what a template sees of a request (OP-7.5, OP-7.15).
func (r *Renderer) data(ctx context.Context, in *pb.BootstrapRequest) *Data {
	m := in.GetMachine()
	d := &Data{
		ClusterID: r.ClusterID, MachineID: m.GetMachineId(), Provider: m.GetProvider(), ProviderID: m.GetProviderId(), Labels: maps.Clone(m.GetLabels()),
		APIServer: r.APIServer, CABundle: string(r.CABundle), KubeletVersion: r.KubeletVersion, TTLSeconds: int64(r.TTL / time.Second),
		ctx: ctx, tokens: r.Tokens, ttl: r.TTL,
	}
	for key, value := range map[string]string{corev1.LabelInstanceTypeStable: m.GetInstanceType(), corev1.LabelTopologyZone: m.GetZone()} {
		if value != "" && d.Labels[key] == "" { // where no cloud controller adds them, Pods would look for them in vain
			if d.Labels == nil {
				d.Labels = map[string]string{}
			}
			d.Labels[key] = value
		}
	}
	for _, t := range m.GetTaints() {
		d.Taints = append(d.Taints, Taint{t.Key, t.Value, t.Effect})
	}
	for _, q := range in.Requirements {
		op, values := operatorNames[q.Operator], q.Values
		if c := q.Comparison; c != nil && op == "Exists" {
			if op, values = "Gt", []string{strconv.FormatInt(c.Bound, 10)}; c.Less {
				op = "Lt"
			}
		}
		if q.Operator == pb.NodeSelectorRequirement_OPERATOR_SAME {
			if len(values) != 1 {
				continue
			}
			op = "In"
		}
		switch {
		case op == "In" && len(values) == 1 && q.Key == v1alpha1.LabelMachineID:
			d.MachineID = cmp.Or(d.MachineID, values[0])
			continue
		case op == "In" && len(values) == 1 && q.Key == v1alpha1.RequirementKubeletVersion:
			d.KubeletVersion = values[0]
		}
		d.Requirements = append(d.Requirements, Requirement{q.Key, op, slices.Clone(values)})
	}
	if d.MachineID != "" {
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels[v1alpha1.LabelMachineID] = machine.LabelValue(d.MachineID)
	}
	return d
}

var operatorNames = map[pb.NodeSelectorRequirement_Operator]string{
	pb.NodeSelectorRequirement_OPERATOR_IN: "In", pb.NodeSelectorRequirement_OPERATOR_NOT_IN: "NotIn",
	pb.NodeSelectorRequirement_OPERATOR_EXISTS: "Exists", pb.NodeSelectorRequirement_OPERATOR_DOES_NOT_EXIST: "DoesNotExist",
}

// versions fills the versions and refuses a kubelet that the API server cannot serve (OP-7.11).
func (r *Renderer) versions(ctx context.Context, d *Data) error {
	if r.Versions == nil {
		return nil
	}
	server, err := r.Versions.Get(ctx)
	if err != nil {
		if d.KubeletVersion == "" || r.template != nil && r.template.Name() != "stub" {
			return problem(pb.BootstrapBlobResponse_ERROR_CLASS_SKEW, true, "the version of the API server cannot be read: %v", err)
		}
		return nil
	}
	kubelet := cmp.Or(d.KubeletVersion, server)
	if refused := checkSkew(kubelet, server); refused != nil { // the API server may have been upgraded meanwhile
		if server, err = r.Versions.Again(ctx); err != nil || checkSkew(kubelet, server) != nil {
			return refused
		}
	}
	d.ClusterVersion, d.KubeletVersion = server, kubelet
	return nil
}
