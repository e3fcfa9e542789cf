#!/usr/bin/env bash
# golangci-lint over every module of go.work, from the root, so that one cache and one configuration serve all.
# usage: tools/lint.sh [PATTERN]...      (default: every module)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/install.sh lint
if [[ $# -eq 0 ]]; then
  while IFS= read -r dir; do
    case $dir in "$PWD"/gen/go) ;; *) set -- "$@" ".${dir#"$PWD"}/..." ;; esac
  done < <(go list -m -f '{{.Dir}}')
fi
exec .bin/golangci-lint run "$@"
