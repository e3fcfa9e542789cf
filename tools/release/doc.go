// Command release makes a release of BigFleet out of a checkout, or shows what it would make.
//
//	go run ./tools/release -version v0.2.0 -out dist            # dry run: writes dist, touches no ref of the repository
//	go run ./tools/release -version v0.2.0 -out dist -tag       # also makes the release commit and its tags
//
// Between releases the modules of this repository require each other at v0.0.0 and replace each other by path. Consumers ignore
// `replace`, so that could not be built outside. A release is one commit beside main in which no published module has a replace
// directive and every sibling has the version of the release; each module has its own tag on that commit, named after its directory.
//
// A version that breaks what the release before it promised is refused (compat.go).
//
// It writes to -out:
//
//   - proxy/: the module zips in the layout of a Go module proxy, usable as GOPROXY=file://…/proxy
//   - bin/: the command and the services for linux and darwin, amd64 and arm64, stripped and reproducible, with SHA256SUMS
//     and an SPDX document for each
//   - oci/: an image layout with the charts, and with the images that they run, for linux on both architectures
//   - charts/: the charts as archives
//   - npm/: the package of gen/ts
//   - buf/: the protos as a Buf module
//   - notes.md: the section of the changelog
//
// The zips and sums are those that the go command computes from the tags. Start at main.go, then modules.go and rewrite.go.
package main
