#!/usr/bin/env bash
# Builds the pinned tools into .bin, if they are not there yet. Needs Go and nothing else.
#
# usage: tools/install.sh [api|kube|lint]...      (default: api)
#   api   buf, its Go plugins and this repository's generators   tools/go.mod
#   kube  controller-gen                                         tools/kube/go.mod
#   lint  golangci-lint                                          tools/lint/go.mod
#
# A stamp per set, over go.mod, go.sum, the generators' sources and the Go version, makes the second run free.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.bin
mkdir -p "$bin"

# install_set NAME DIRECTORY [GENERATOR]...: the tools of the module in DIRECTORY and our own generators in it.
install_set() {
  local name=$1 dir=$2
  shift 2
  local stamp want
  stamp=$bin/.stamp-$name
  want=$( (go env GOVERSION; cd "$dir"; cat go.mod go.sum; for g in "$@"; do cat "$g"/*.go; done) | git hash-object --stdin)
  if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
    return
  fi
  echo "building the $name tools into .bin (once; some minutes on a fresh machine)" >&2
  (cd "$dir" && GOWORK=off GOFLAGS=-buildvcs=false GOBIN="$bin" go install tool "$@")
  echo "$want" >"$stamp"
}

for name in "${@:-api}"; do
  case $name in
    api) install_set api tools ./validateproto ./protoc-gen-openapi ;;
    kube) install_set kube tools/kube ;;
    lint) install_set lint tools/lint ;;
    *) echo "install.sh: unknown set $name" >&2; exit 2 ;;
  esac
done
