// Package config fills the settings of a role from flags, environment, a YAML file and defaults, in that order
// (OPS-2.2).
//
// A setting is a flag: its name is the name everywhere. --shard-addr is BIGFLEET_OPERATOR_SHARD_ADDR in the
// environment and `shard-addr:` in the file, and all three are parsed by the flag itself, so none can accept what
// another refuses (docs/adr/0003). A key of the file that is not a flag is an error with line and column. All that is
// wrong is reported at once, as one *Error with exit code 2 (OPS-2.3).
//
// Shared holds the flags that all roles have (OPS-2.1). The package reads the environment and the file once, at Load;
// it watches nothing, because at run time only TLS files and admin RPCs change behaviour (SHARD-3.11).
//
// Start at Shared and Loader.
package config
