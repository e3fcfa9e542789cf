// Package quantity reads and writes Kubernetes quantities without Kubernetes, for every part of BigFleet and for providers.
//
// Amounts are int64 milli-units: 1500 is one and a half cpu, 1024000 is 1Ki of memory. Parse reads the text form exactly, with
// a stated direction of rounding. Format writes the shortest exact text in the unit that people use for the resource: bytes
// with binary suffixes, everything else as plain numbers or milli-units. Parse(Format(x)) is x.
//
// Sign checks a quantity that a provider emits. It is stricter than Parse: the length and the exponent have small bounds.
//
// The package uses the standard library only. Tests in the shard compare it with apimachinery. Start at Parse and Format.
package quantity
