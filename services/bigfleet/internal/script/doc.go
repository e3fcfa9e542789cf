// Package script holds the tests that run the `bigfleet` command as people do: each file in testdata is a script of command
// lines against running `bigfleet up` processes, with what they must print and how they must end (txtar, testscript).
//
// It has no code of its own. To add a case, copy the script that is nearest; give every `bigfleet up` in it free ports, as `world` does.
package script
