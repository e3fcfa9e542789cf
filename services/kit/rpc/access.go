package rpc

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
)

// Access says who may call one RPC. The zero Access is invalid, so that a forgotten row is a start error.
type Access struct {
	rule  accessRule
	kinds []identity.Kind
}

type accessRule uint8

const (
	accessUnset accessRule = iota
	accessKinds
	accessMutation
	accessHandler
)

// Allow lets the kinds call under TLS. On plaintext every caller may (WIRE-2.5).
func Allow(kinds ...identity.Kind) Access { return Access{accessKinds, kinds} }

// AllowMutation is Allow, but on plaintext only loopback peers may call, unless ServerConfig.InsecureAdmin (WIRE-2.5).
func AllowMutation(kinds ...identity.Kind) Access { return Access{accessMutation, kinds} }

// HandlerDecides leaves the check to the handler, which finds the Peer in its context: for RPCs whose identity is
// judged against a field of the request. Other kinds are refused before the body is read; none given means any.
func HandlerDecides(kinds ...identity.Kind) Access { return Access{accessHandler, kinds} }

// AllowAll gives every RPC of a service the same Access.
func AllowAll(service string, a Access) map[string]Access {
	out := map[string]Access{}
	methods, err := methodsOf(service)
	if err != nil {
		return out // NewServer names the service that is not linked in
	}
	for _, m := range methods {
		out[m.procedure] = a
	}
	return out
}

// AllowByEffect lets readers call the RPCs marked NO_SIDE_EFFECTS and writers the others, as AllowMutation. Further
// rows may be put over it.
func AllowByEffect(service string, readers, writers []identity.Kind) map[string]Access {
	out := map[string]Access{}
	methods, err := methodsOf(service)
	if err != nil {
		return out
	}
	for _, m := range methods {
		if m.reads {
			out[m.procedure] = Allow(readers...)
		} else {
			out[m.procedure] = AllowMutation(writers...)
		}
	}
	return out
}

// Refusal is one call that was refused for its caller's identity.
type Refusal struct {
	Procedure string // /bigfleet.v1alpha1.ShardAdmin/PauseActuation
	Peer      Peer
	Err       error
}

// errPlaintextAdmin is what a remote plaintext caller of a mutating RPC gets.
var errPlaintextAdmin = errors.New("without TLS, only callers on the same host may call this: call from there (a forwarded port counts), or turn on TLS")

// judge returns nil or a PERMISSION_DENIED.
func (a Access) judge(p Peer, insecureAdmin bool) error {
	switch a.rule {
	case accessKinds:
		return p.Require(a.kinds...)
	case accessMutation:
		if !p.TLS && !p.Loopback && !insecureAdmin {
			return connect.NewError(connect.CodePermissionDenied, errPlaintextAdmin)
		}
		return p.Require(a.kinds...)
	case accessHandler:
		if len(a.kinds) == 0 {
			return nil
		}
		return p.Require(a.kinds...)
	default:
		return connect.NewError(connect.CodePermissionDenied, errors.New("this method must not be called"))
	}
}

// method is one RPC of a linked-in service.
type method struct {
	procedure string
	streaming bool
	uploads   bool // the client streams
	reads     bool // idempotency_level = NO_SIDE_EFFECTS (WIRE-4.8)
}

func methodsOf(service string) ([]method, error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", service, err)
	}
	descriptor, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%q is not a service", service)
	}
	out := make([]method, descriptor.Methods().Len())
	for n := range out {
		m := descriptor.Methods().Get(n)
		options, _ := m.Options().(*descriptorpb.MethodOptions)
		out[n] = method{
			procedure: fmt.Sprintf("/%s/%s", service, m.Name()),
			streaming: m.IsStreamingClient() || m.IsStreamingServer(),
			uploads:   m.IsStreamingClient(),
			reads:     options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
		}
	}
	return out, nil
}

// checkAccess wants a rule for each RPC and no rule for anything else.
func checkAccess(methods []method, table map[string]Access) error {
	known := map[string]bool{}
	var wrong []string
	for _, m := range methods {
		known[m.procedure] = true
		if table[m.procedure].rule == accessUnset {
			wrong = append(wrong, m.procedure+" has no rule")
		}
	}
	for procedure := range table {
		if !known[procedure] {
			wrong = append(wrong, procedure+" does not exist")
		}
	}
	if len(wrong) > 0 {
		sort.Strings(wrong)
		return fmt.Errorf("Access: %s", strings.Join(wrong, ", "))
	}
	return nil
}
