#!/usr/bin/env bash
# Everything that is generated from proto/, and everything that guards it. Works offline once the tools are there.
#
# usage: tools/proto.sh COMMAND
#   generate        format the protos, write gen/go, gen/openapi, gen/ts, proto/third_party and the coordinator's stored format
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

# The workspace that also holds what one service stores. buf.yaml is the published one and holds the API alone.
stored=services/coordinator/buf.workspace.yaml

# Every proto that people write, as --path arguments: all but third_party.
own_protos() { find proto/bigfleet services -name node_modules -prune -o -name '*.proto' -print | sed 's/^/--path=/'; }

# The pinned npm packages, installed again only when the lock file changed.
npm_packages() {
  local stamp=gen/ts/node_modules/.stamp want
  want=$(git hash-object gen/ts/package-lock.json)
  if [[ ! -f $stamp || $(<"$stamp") != "$want" ]]; then
    (cd gen/ts && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --loglevel=error >&2) && echo "$want" >"$stamp"
  fi
}

# generate_fresh: what the protos generate and nothing else, in $fresh.
generate_fresh() {
  mkdir -p "$fresh"
  validateproto "$fresh/proto/third_party/protovalidate"
  buf generate -o "$fresh"
  buf generate --config "$stored" --template services/coordinator/buf.gen.yaml -o "$fresh" # generated beside its only user
  if ! node_is_there; then
    say "gen/ts is left out: it needs node 20 or newer and npm"
  elif ! npm_packages; then
    say "gen/ts is left out: its npm packages cannot be installed"
  else
    buf generate --template buf.gen.ts.yaml -o "$fresh"
  fi
}

# differing: the generated files of the repository that are missing, different or left over, and the fresh ones.
differing() {
  local dir file
  for dir in gen/go/bigfleet gen/openapi gen/ts/bigfleet gen/ts/buf proto/third_party/protovalidate/buf; do
    [[ -d $fresh/$dir ]] || continue
    find "$dir" -type f 2>/dev/null | while IFS= read -r file; do [[ -f $fresh/$file ]] || echo "$file"; done
  done
  (cd "$fresh" && find . -type f) | while IFS= read -r file; do
    cmp -s "$fresh/$file" "$file" || echo "${file#./}"
  done
}

# Only what differs is written, so that builds that run meanwhile see every file.
generate() {
  local file
  buf format --config "$stored" -w $(own_protos)
  validateproto proto/third_party/protovalidate # first, because the rest is generated from it
  generate_fresh
  differing | while IFS= read -r file; do
    echo "$file"
    if [[ -f $fresh/$file ]]; then
      mkdir -p "$(dirname "$file")"
      cp "$fresh/$file" "$file"
    else
      rm "$file"
    fi
  done
}

generate_check() {
  local list
  generate_fresh
  list=$(differing)
  [[ -n $list ]] || return 0
  echo "$list" >&2
  say "these files are not what the protos generate: run 'make generate' and commit the result"
  return 1
}

check() {
  local failed=0 image
  buf lint || { say "buf lint found the above"; failed=1; }
  buf lint --config "$stored" --path services/coordinator/internal/coordinatorlog || { say "buf lint found the above"; failed=1; }
  buf format --config "$stored" -d --exit-code $(own_protos) >&2 || { say "a proto is not formatted: run 'make generate'"; failed=1; }
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
fresh=$tmp/fresh
case ${1:-} in
  generate) generate ;;
  generate-check) generate_check ;;
  check) check ;;
  release-image) buf build --path proto/bigfleet --exclude-source-info -o proto/baseline/release.binpb ;;
  *) sed -n '/^# usage/,/^#$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
