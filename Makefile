# BigFleet. `make demo` runs the main job on this machine; `make test` runs everything that tests this repository.
# Needs Go, git and make, and nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO_MIN := 1.26
BIN    := $(CURDIR)/.bin
export PATH := $(BIN):$(PATH)

# Every module of go.work except e2e, whose tests run real control planes and come last.
modules = $(shell go list -m -f '{{.Dir}}')
units   = $(filter-out $(CURDIR)/e2e,$(modules))

# What takes longest begins first, one that computes beside one that waits: most packages that take long wait more than they work, so one more than this
# many processors run at a time. AT_ONCE=n for a larger machine.
AT_ONCE ?= 3
long = services/shard/internal/engine/planner services/bigfleet/internal/up services/shard services/providers/aws services/providers/hosts services/bigfleet/internal/script \
	sdk/provider/template services/coordinator services/providers/sim sdk/provider/conformance services/providers/clusterapi services/shard/internal/sim

# Tests on control planes that bound no time but that of the whole wait: two at a time. The others come one by one.
beside = published operator command kwokprovider charts controlplane cmd/controlplane monitoring

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: prerequisites
prerequisites:
	@command -v git >/dev/null || { echo "git is missing: install it and run make again" >&2; exit 1; }
	@command -v go >/dev/null || { echo "Go is missing: install Go $(GO_MIN) or newer and run make again" >&2; exit 1; }
	@go version | awk '{split(substr($$3,3),v,"."); if (v[1]<1 || (v[1]==1 && v[2]<26)) {print "Go $(GO_MIN) or newer is needed, this is " $$3 > "/dev/stderr"; exit 1}}'

.PHONY: demo
demo: prerequisites ## A Deployment asks for more than its cluster has: watch machines come and go. KEEP=1 leaves it running; REAL=1 shows real containers on real kubelets (Linux, root).
ifdef REAL
	cd e2e && go run ./cmd/controlplane build && go test -count 1 -timeout 15m -v -run '^TestReal$$' ./real
else
	@go build -C e2e -o $(BIN)/demo ./cmd/demo && exec $(BIN)/demo $(if $(KEEP),--keep)
endif

.PHONY: test
test: prerequisites generate-check lint console-check modules-check ## Everything that tests this repository.
	@$(MAKE) --no-print-directory -j 2 unit hostile-beside
	@$(MAKE) --no-print-directory e2e

.PHONY: unit
unit: prerequisites ## Tests of every module but e2e.
	go test -p $(AT_ONCE) -timeout 15m $(addprefix ./,$(long)) $(addsuffix /...,$(units))

# Ten minutes of hostile callers beside the tests of units: so few calls a second leave these their processors. A part of e2e is as many as the servers answer.
.PHONY: hostile-beside
hostile-beside: prerequisites
	cd e2e && BIGFLEET_HOSTILE_SECONDS=600 BIGFLEET_HOSTILE_RATE=30 go test -count=1 -run TestHostileCallers -timeout 30m ./hostile

.PHONY: e2e
e2e: prerequisites ## Tests on real control planes (built once, about six minutes, then cached).
	cd e2e && go run ./cmd/controlplane build
	cd e2e && go test -p 2 -timeout 30m $(patsubst %,./%/...,$(beside))
	cd e2e && go test -p 1 -timeout 30m $$(go list ./... | grep -vE '/e2e/($(subst $(eval ) ,|,$(beside)))(/|$$)')

.PHONY: race
race: prerequisites ## The unit tests under the race detector.
	go test -race -timeout 30m $(addsuffix /...,$(units))

.PHONY: generate
generate: prerequisites ## Rewrite gen/ and deploy/crds from proto/ and sdk/kube.
	tools/proto.sh generate
	tools/install.sh kube
	cd sdk/kube && go generate ./...

.PHONY: generate-check
generate-check: prerequisites ## Fail when gen/ is not what proto/ generates. (deploy/crds is checked by a test of sdk/kube.)
	tools/proto.sh generate-check

.PHONY: console
console: ## Build the web UI into services/console/web/dist, which is committed. Needs Node and npm.
	cd services/console/web && npm ci --no-audit --no-fund && npm run -s check && npm run -s build

.PHONY: console-check
console-check: ## Fail when the committed web UI is not what its source builds. Says so and skips without Node.
	@command -v npm >/dev/null || { echo "console-check: npm is missing, the built web UI is not compared with its source"; exit 0; }; \
	$(MAKE) --no-print-directory console && { [ -z "$$(git status --porcelain services/console/web/dist)" ] || { git status --short services/console/web/dist; echo "services/console/web/dist is not what its source builds: run 'make console' and commit" >&2; exit 1; }; }

.PHONY: console-test
console-test: prerequisites ## The web UI in Chromium on real fleets: every page, the three questions, faults while it is open; TIMES=n. PICTURES=DIR keeps screenshots.
	cd e2e && PICTURES="$(PICTURES)" go test -count=$(or $(TIMES),1) -timeout 1h -v ./console

.PHONY: lint
lint: prerequisites ## Buf lint, format and breaking checks, gofmt, golangci-lint.
	tools/proto.sh check
	@unformatted=$$(git ls-files '*.go' | grep -vE '^(gen/|.*/testdata/)' | xargs gofmt -l); [ -z "$$unformatted" ] || { echo "not gofmt'ed, run gofmt -w on: $$unformatted" >&2; exit 1; }
	tools/lint.sh

.PHONY: modules-check
modules-check: prerequisites ## Every module builds alone, without go.work.
	@for m in $(modules); do (cd $$m && GOWORK=off go build -o /dev/null ./... && GOWORK=off go vet ./...) || { echo "$$m does not build alone: run 'GOWORK=off go build ./...' there" >&2; exit 1; }; done

.PHONY: capi
capi: prerequisites ## The provider for Cluster API on its real controllers: a burst of MACHINES=20; CERTIFY=1 runs the suite, too. Compiles for minutes once.
	cd e2e/capi && GOWORK=off go test -count 1 -timeout 60m . -args -machines $(or $(MACHINES),20) $(if $(CERTIFY),-conformance)

.PHONY: certify
certify: prerequisites ## The providers aws, clusterapi and hosts through the whole suite with 10,000 machines each: core, cloud or bare-metal, spot, durable, fault, scale, and a soak of SOAK=5m. LIMIT=2m for a machine that does other work.
	for p in aws clusterapi hosts; do (cd services/providers/$$p && go test -count 1 -timeout 60m -run '^TestConformance$$' . -args -soak $(or $(SOAK),5m) $(if $(LIMIT),-limit $(LIMIT))) || exit 1; done

.PHONY: bench
bench: prerequisites ## Benchmarks B1 to B12 and PROV-25, recorded in docs/benchmarks/results: clean tree, quiet machine, half an hour. ONLY=B1,B8 for some.
	cd e2e && go run ./bench/cmd/benchrun $(if $(ONLY),-only $(ONLY))

.PHONY: bench-nightly
bench-nightly: prerequisites ## All of them with B6b and B9, which need control planes and minutes.
	cd e2e && go run ./bench/cmd/benchrun -nightly

.PHONY: bench-provider
bench-provider: prerequisites ## Section 25 of the provider's specification alone, recorded in docs/benchmarks/results: six minutes.
	cd e2e && go run ./bench/cmd/benchrun -only PROV

.PHONY: bench-console
bench-console: prerequisites ## B13, the console in Chromium on 500,000 machines (MACHINES=n) and 50,000 needs, recorded: clean tree, quiet machine, forty minutes. Needs Node.
	cd services/console/web && npm ci --no-audit --no-fund
	cd e2e && BIGFLEET_BENCH_RESULTS=$(CURDIR)/docs/benchmarks/results go run ./bench/cmd/shardload -bench B13 -sessions 1000 -machines $(or $(MACHINES),500000) -needs $$(( $(or $(MACHINES),500000) / 10 ))

.PHONY: bench-ci
bench-ci: prerequisites ## The same at a tenth of each size, compared with e2e/bench/gates.yaml; four minutes, records nothing.
	cd e2e && go run ./bench/cmd/benchrun -ci $(if $(ONLY),-only $(ONLY))

.PHONY: bench-report
bench-report: prerequisites ## Write docs/benchmarks.md and its pictures from the recorded results.
	cd e2e && go run ./bench/cmd/benchreport

.PHONY: release
release: prerequisites ## VERSION=v0.x.y: modules, programs, images, charts, npm package and notes in dist/. A dry run; TAG=1 makes the release commit and its tags. PLATFORMS=linux/amd64 for some.
	@test -n "$(VERSION)" || { echo "say VERSION=v0.x.y" >&2; exit 1; }
	cd tools/release && GOWORK=off go run . -root $(CURDIR) -out $(CURDIR)/dist -version $(VERSION) $(if $(TAG),-tag) $(if $(PLATFORMS),-platforms $(PLATFORMS))

.PHONY: laws
laws: prerequisites ## The laws of the engine on TIMES=n times as many random fleets, with fresh seeds; 20 is a night (docs/engine.md).
	cd services/shard && BIGFLEET_ENGINE_LONG=$(or $(TIMES),20) go test -count=1 -timeout 24h ./internal/engine/...

SEEDS ?= 2000
SEED  ?= 1
.PHONY: sim
sim: prerequisites ## Simulated fleets with faults: SEEDS=n of them from SEED=first on (docs/simulator.md).
	@cd services/shard && go run ./internal/sim/cmd/sim -seeds $(SEEDS) -first $(SEED) -profile mixed$(if $(filter 2000,$(SEEDS)), -coverage)

.PHONY: mutants
mutants: prerequisites ## N=100 random changes of the engine, one at a time, from SEED: how many its tests notice (docs/engine.md). Half a minute each, one processor; a run that was stopped goes on.
	@mkdir -p $(BIN) && go build -C tools/mutants -o $(BIN)/mutants . && nice -n 15 $(BIN)/mutants -n $(or $(N),100) -seed $(SEED) -results $(BIN)/mutants-$$(git rev-parse --short HEAD)-$(SEED).txt

.PHONY: worst
worst: prerequisites ## B15: acknowledgements of one cluster beside another at all limits of a roll-up (docs/benchmarks/B15.md).
	cd e2e && BIGFLEET_WORST_SECONDS=30 BIGFLEET_WORST_RACKS=3000 go test -count=1 -v -run TestWorstTenant ./hostile

MINUTES ?= 10
.PHONY: hostile
hostile: prerequisites ## Callers that misuse every RPC of every server for ten minutes or MINUTES=n; a failure names its seed (e2e/hostile).
	cd e2e && BIGFLEET_HOSTILE_SECONDS=$$(( $(MINUTES) * 60 )) go test -count=1 -v -run TestHostileCallers -timeout $$(( $(MINUTES) + 20 ))m ./hostile

.PHONY: hostile-hour
hostile-hour: ## make hostile for an hour.
	$(MAKE) hostile MINUTES=60

.PHONY: oracle-page
oracle-page: prerequisites ## SEEDS random worlds (30 unless said, a minute each) as in oracle, written to docs/benchmarks/oracle.md.
	lines=$$(mktemp) && cd e2e && go run ./cmd/controlplane build && BIGFLEET_ORACLE_LINES=$$lines BIGFLEET_ORACLE_PAGE=$(CURDIR)/docs/benchmarks/oracle.md \
		BIGFLEET_ORACLE_SEEDS=$(if $(filter command,$(firstword $(origin SEEDS))),$(SEEDS),30) BIGFLEET_ORACLE_SEED=$(SEED) go test -count=1 -v -run TestOracle -timeout 24h ./oracle; \
		status=$$?; rm -f $$lines; exit $$status

.PHONY: oracle
oracle: prerequisites ## The real kube-scheduler judges what BigFleet buys: SEEDS=n random worlds, 10 unless said, from SEED=first on, a minute each (e2e/oracle).
	cd e2e && go run ./cmd/controlplane build && BIGFLEET_ORACLE_SEEDS=$(if $(filter command,$(firstword $(origin SEEDS))),$(SEEDS),10) BIGFLEET_ORACLE_SEED=$(SEED) go test -count=1 -v -run TestOracle -timeout 24h ./oracle

.PHONY: peer
peer: prerequisites ## B14, BigFleet beside Karpenter on one control plane, written to docs/benchmarks/B14.md: ROUNDS=n turns of each side, about seven minutes a turn. SCENE=burst, mix or day prints that one alone, ALONE=1 without Karpenter.
	cd e2e && go run ./cmd/controlplane build && go run ./peer -rounds $(or $(ROUNDS),3) $(if $(ALONE),-alone) $(if $(SCENE)$(ALONE),-scene '$(SCENE)',-out $(CURDIR)/docs/benchmarks/B14.md)

.PHONY: questions
questions: prerequisites ## The questions of docs/questions.md on real control planes, two minutes (a part of e2e).
	cd e2e && go run ./cmd/controlplane build && go test -count=1 -run TestRealClusters/questions ./command

.PHONY: week
week: prerequisites ## A week of a cluster, SEEDS=n of them, 1 unless said, from SEED=first on: nobody is harmed by routine (e2e/week). Ten minutes each.
	cd e2e && go run ./cmd/controlplane build && BIGFLEET_WEEK_SEEDS=$(if $(filter command,$(firstword $(origin SEEDS))),$(SEEDS),1) BIGFLEET_WEEK_SEED=$(SEED) go test -count=1 -v -run TestWeek -timeout 24h ./week
