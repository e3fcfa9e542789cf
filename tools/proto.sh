#!/usr/bin/env bash
# Everything that is generated from proto/, and everything that guards it. Works offline once the tools are there.
#
# usage: tools/proto.sh COMMAND
#   generate        format proto/, write gen/go, gen/openapi, gen/ts and proto/third_party
#   generate-check  generate into a temporary directory and fail if the repository differs
#   check           lint, format, and no breaking change against both images of proto/baseline (WIRE-13.4)
#   release-image   write proto/baseline/release.binpb: part of cutting a release, and of nothing else
#
# gen/ts needs node 20 or newer and npm, because protoc-gen-es is an npm package. Without them it is left as it is, and one
# line says so; the contract tests still compare its descriptors with gen/go.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/.bin:$PWD/gen/ts/node_modules/.bin:$PATH

say() { echo "proto: $*" >&2; }

node_is_there() {
  local version
  command -v npm >/dev/null && version=$(node --version 2>/dev/null) && version=${version#v} && ((${version%%.*} >= 20))
}

# The pinned npm packages, installed again only when the lock file changed.
npm_packages() {
  local stamp=gen/ts/node_modules/.stamp want
  want=$(git hash-object gen/ts/package-lock.json)
  if [[ ! -f $stamp || $(<"$stamp") != "$want" ]]; then
    (cd gen/ts && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error >&2)
    echo "$want" >"$stamp"
  fi
}

# generate_into DIRECTORY: what is generated and nothing else. Files of protos that are gone do not survive.
generate_into() {
  rm -rf "$1/gen/go/bigfleet" "$1/gen/openapi"
  validateproto "$1/proto/third_party/protovalidate"
  buf generate -o "$1"
  if node_is_there; then
    npm_packages
    rm -rf "$1/gen/ts/bigfleet" "$1/gen/ts/buf"
    buf generate --template buf.gen.ts.yaml -o "$1"
  else
    say "gen/ts is left out: it needs node 20 or newer and npm"
  fi
}

generate_check() {
  local fresh=$tmp/fresh failed=0 path
  mkdir -p "$fresh"
  generate_into "$fresh"
  for path in gen/go/bigfleet gen/openapi gen/ts/bigfleet gen/ts/buf proto/third_party/protovalidate/buf; do
    if [[ -e $fresh/$path ]] && ! diff -r "$path" "$fresh/$path" >"$tmp/diff"; then
      head -n 20 "$tmp/diff" >&2
      say "$path is not what proto/ generates: run 'make generate' and commit the result"
      failed=1
    fi
  done
  return $failed
}

check() {
  local failed=0 image
  buf lint || { say "buf lint found the above"; failed=1; }
  buf format -d --exit-code --path proto/bigfleet >&2 || { say "proto/ is not formatted: run 'make generate'"; failed=1; }
  buf build --path proto/bigfleet --exclude-source-info -o "$tmp/now.binpb"
  for image in contract:proto/baseline/contract.yaml release:buf.yaml; do
    buf breaking "$tmp/now.binpb" --exclude-imports --config "${image#*:}" --against "proto/baseline/${image%:*}.binpb" ||
      { say "the schema breaks proto/baseline/${image%:*}.binpb: a breaking change is a new package (WIRE-1.10)"; failed=1; }
  done
  return $failed
}

tools/install.sh api
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case ${1:-} in
  generate) buf format -w --path proto/bigfleet && generate_into . ;;
  generate-check) generate_check ;;
  check) check ;;
  release-image) buf build --path proto/bigfleet --exclude-source-info -o proto/baseline/release.binpb ;;
  *) sed -n '/^# usage/,/^#$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
