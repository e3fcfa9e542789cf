// Package request reads CapacityRequests so tolerantly that no tenant can stop the operator.
//
// The schema of the custom resource lets values through that the typed Go client cannot decode: a quantity with a
// fractional exponent, a priority beyond 32 bits. One such object would fail the decoding of a whole list, and with it
// the demand of a whole cluster. The type here decodes any object the API server can hold; what cannot be read is
// remembered as a Fault of that one object.
//
// Quantities become integers in milli-units here, once, so that nothing behind this package parses text. A Request is
// read-only after decoding and is shared without copies.
//
// Start at Request; Register puts it into a scheme in the place of sdk/kube's type.
package request
