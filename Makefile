# Every target works on a fresh machine: Python 3.11 and a network are enough.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

UV_VERSION := 0.13.9
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
PY := .venv/bin/python
# Spark and Kafka stay on the loopback interface in everything that runs from here.
export SPARK_LOCAL_IP := 127.0.0.1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

.tools/bin/uv:
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# The stamp is younger than the lock only when the environment holds exactly what the lock names. Modules are compiled once:
# where PYTHONDONTWRITEBYTECODE is set, a driver and its workers would compile 2,000 of them at each start, for 2 s.
.venv/.locked: requirements.lock pyproject.toml | $(filter .tools/bin/uv,$(UV))
	$(UV) venv --quiet --allow-existing --python '>=3.11' .venv
	$(UV) pip sync --quiet --compile-bytecode --python $(PY) --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(PY) --no-deps --editable .
	@$(PY) -m compileall -q matcher streaming
	@touch $@

.PHONY: setup
setup: .venv/.locked ## install everything that is locked, and the jars of Spark's connector and of Kafka
	@.venv/bin/reexpand jars

.PHONY: demo
demo: setup ## the real thing: a Kafka broker, the Spark job, events, and what the job makes of them
	@.venv/bin/reexpand demo

.PHONY: cluster-demo
cluster-demo: setup ## the same on a Spark cluster of two workers, one of which is killed half way
	@.venv/bin/reexpand demo --cluster

.PHONY: demo-rocketmq
demo-rocketmq: setup ## patterns over lite topics of a real RocketMQ: tenants, consumers, a job that is killed half way
	@.venv/bin/reexpand demo --rocketmq

.PHONY: archive
archive: setup ## an archive of Spark's Java classes, with which jobs start faster
	@.venv/bin/reexpand jars --archive

# Tests on a broker go to one process, one after the other: they mostly wait, and the other processes work meanwhile.
.PHONY: test
test: setup ## the main guarantees: all fast tests, and the main ones on a real broker and a real Spark (8 minutes)
	.venv/bin/pytest -n 3 --dist loadgroup -m 'main or not (integration or containers or long)'

# Each process has a broker of its own, and runs whole files: the tests of a file share a broker, a Spark or a job.
.PHONY: check
check: setup archive ## the other tests on a real broker and a real Spark, except the long ones (half an hour)
	.venv/bin/pytest -n 2 --dist loadfile -m '(integration or containers) and not (main or long)'

.PHONY: test-fast
test-fast: .venv/.locked ## the tests that need neither a broker nor Spark
	.venv/bin/pytest -n 2 -m 'not (integration or containers or long)'

.PHONY: test-histories
test-histories: .venv/.locked ## 20,000 random histories, 8,000 with explanations, against the oracle, and 50,000 short stories (half an hour)
	REEXPAND_EXAMPLES=2500 REEXPAND_STORY_LENGTH=3 .venv/bin/pytest \
	  tests/property/streaming/test_histories.py tests/property/streaming/test_explain.py \
	  tests/property/streaming/test_short_stories.py

.PHONY: test-long
test-long: setup ## further stories of the real job: topics, time, large records, verification (half an hour)
	.venv/bin/pytest -m long tests/integration

.PHONY: test-tutorials
test-tutorials: setup ## the commands of the main page and of all tutorials, literally, with the duration of each step
	.venv/bin/pytest -m "long or not long" -p no:randomly -s tests/integration/test_tutorials.py tests/integration/test_reading_updates.py

.PHONY: test-fence
test-fence: setup ## drivers and workers that wake up after they were replaced: five times each (half an hour)
	REEXPAND_FENCE_ROUNDS=5 .venv/bin/pytest tests/integration/test_fence.py -k wakes_up

.PHONY: test-rocketmq
test-rocketmq: setup ## patterns over lite topics of a real RocketMQ, with the job and the official client, and kills (twenty minutes)
	.venv/bin/pytest -m "long or not long" tests/integration/test_rocketmq*.py

.PHONY: test-bad-input
test-bad-input: setup ## 100,000 damaged records, and 2.7 GB of large ones, in the real job (half an hour)
	REEXPAND_BAD_RECORDS=100000 .venv/bin/pytest -m "long or not long" \
	  tests/integration/test_job.py::test_damaged_records_harm_nothing_else tests/integration/test_bad_input.py

# What some targets install beside the downloads.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/reexpand

# Needed by no other target; Go builds it.
S3_SERVER_VERSION := v1.8.0
S3_SERVER := $(CACHE)/versitygw/$(S3_SERVER_VERSION)/versitygw

$(S3_SERVER):
	GOBIN=$(dir $@) go install github.com/versity/versitygw/cmd/versitygw@$(S3_SERVER_VERSION)

.PHONY: test-s3
test-s3: setup $(S3_SERVER) ## a checkpoint on S3-compatible storage, on a server that Go builds (needs Go)
	.venv/bin/pytest -m long tests/integration/test_s3.py

.PHONY: test-containers
test-containers: .venv/.locked ## docker-compose.yml for real: build, start, send events, restart (needs a container engine)
	.venv/bin/pytest -m containers tests/containers/test_compose.py

# Its go.mod says of which version.
KUBERNETES_API := $(CACHE)/kubernetes

$(KUBERNETES_API)/etcd: tests/containers/apiserver/go.mod
	cd $(<D) && CGO_ENABLED=0 go build -o $@ go.etcd.io/etcd/server/v3

$(KUBERNETES_API)/kube-apiserver: tests/containers/apiserver/go.mod tests/containers/apiserver/main.go
	cd $(<D) && CGO_ENABLED=0 go build -o $@ .

.PHONY: test-executors
test-executors: setup $(S3_SERVER) $(KUBERNETES_API)/etcd $(KUBERNETES_API)/kube-apiserver ## executors of Spark on the API of Kubernetes, which Go builds (needs Go, and root; 10 minutes the first time)
	.venv/bin/pytest -m containers tests/containers/test_executors.py

HELM_VERSION := v3.20.2
HELM := $(CACHE)/helm/$(HELM_VERSION)/helm

$(HELM):
	GOBIN=$(dir $@) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

.PHONY: test-helm
test-helm: .venv/.locked $(HELM) ## deploy/helm rendered, checked against the schemas of Kubernetes and compared with kustomize (needs Go)
	.venv/bin/pytest tests/unit/deploy/test_kubernetes.py

.PHONY: test-kubernetes
test-kubernetes: .venv/.locked ## deploy/kubernetes on the cluster of kubectl's context: a rollout and a killed driver (see deploy/README.md)
	.venv/bin/pytest -m containers tests/containers/test_kubernetes.py

.PHONY: chaos
chaos: setup ## faults strike the real job under load, and what is left is judged (an hour); CHAOS="..." for its options
	$(PY) -m tests.chaos.run $(CHAOS)

SOAK_MINUTES := 60

.PHONY: soak
soak: setup ## load with faults at random times for SOAK_MINUTES=60, memory and files looked at each minute
	$(PY) -m tests.chaos.soak --minutes $(SOAK_MINUTES) $(SOAK)

.PHONY: lint
lint: .venv/.locked ## formatting, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

.PHONY: format
format: .venv/.locked ## format and mend what ruff can mend
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# Installed beside the downloads, into environments of their own: no other target needs them.
QUIX_VENV := $(CACHE)/quix
FLINK_VENV := $(CACHE)/flink
BYTEWAX_VENV := $(CACHE)/bytewax

SUITE := job
BENCH_NEEDS := $(if $(filter eager resync cold memory columnar matcher inquiry console,$(SUITE)),.venv/.locked,setup) $(if $(filter peers,$(SUITE)),peers-venvs)

.PHONY: bench
bench: $(BENCH_NEEDS) ## measure SUITE=job, or another one of `make bench-suites`; BENCH="..." for its options
	$(PY) -m tests.bench $(SUITE) $(BENCH)

.PHONY: bench-suites
bench-suites: .venv/.locked ## list what make bench can measure
	@$(PY) -m tests.bench

.PHONY: peers-venvs
peers-venvs: setup
	$(UV) venv --quiet --allow-existing --python $(PY) $(QUIX_VENV)
	$(UV) pip sync --quiet --python $(QUIX_VENV)/bin/python --require-hashes tests/bench/peers/requirements.txt
	$(UV) venv --quiet --allow-existing --python '>=3.11,<3.13' $(FLINK_VENV)
	$(UV) pip sync --quiet --python $(FLINK_VENV)/bin/python --require-hashes tests/bench/peers/requirements-flink.txt
	$(UV) venv --quiet --allow-existing --python '>=3.11,<3.13' $(BYTEWAX_VENV)
	$(UV) pip sync --quiet --python $(BYTEWAX_VENV)/bin/python --require-hashes tests/bench/peers/requirements-bytewax.txt

FUZZ_VENV := $(CACHE)/fuzz
# For a command of another environment that needs the project, and what it is locked to.
WITH_PROJECT = PYTHONPATH=.:$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

FUZZ_SECONDS := 60

.PHONY: fuzz
fuzz: .venv/.locked | $(filter .tools/bin/uv,$(UV)) ## coverage-guided fuzzing, FUZZ_SECONDS=60 a target (FUZZ=NAME: only one)
	$(UV) venv --quiet --allow-existing --python $(PY) $(FUZZ_VENV)
	$(UV) pip install --quiet --python $(FUZZ_VENV)/bin/python --require-hashes -r tests/fuzz/requirements.txt
	$(WITH_PROJECT) \
	  $(FUZZ_VENV)/bin/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ)
	$(if $(FUZZ),,$(MAKE) fuzz-cost)

FUZZ_MINUTES := 1

.PHONY: fuzz-cost
fuzz-cost: .venv/.locked ## search for inputs that cost much for their size, FUZZ_MINUTES=1 a target (FUZZ=NAME: only one)
	$(PY) -m tests.fuzz.cost --minutes $(FUZZ_MINUTES) $(if $(FUZZ),--target $(FUZZ))

CONSOLE_VENV := $(CACHE)/console

# A browser, and the library that drives it, beside the project's own environment.
.PHONY: browser
browser: setup | $(filter .tools/bin/uv,$(UV))
	$(UV) venv --quiet --allow-existing --python $(PY) $(CONSOLE_VENV)
	$(UV) pip sync --quiet --python $(CONSOLE_VENV)/bin/python --require-hashes tests/console/requirements.txt
	@command -v chromium chromium-browser google-chrome >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; } \
	  || $(CONSOLE_VENV)/bin/playwright install chromium

IN_BROWSER = $(WITH_PROJECT) $(CONSOLE_VENV)/bin/python -m pytest

.PHONY: test-console
test-console: browser ## the page of reexpand console in a real Chromium, which is installed where there is none
	$(IN_BROWSER) tests/console $(CONSOLE)

.PHONY: console-pictures
console-pictures: browser ## docs/images/console-*.png: each view of a real job's console, wide and narrow, light and dark
	$(WITH_PROJECT) $(CONSOLE_VENV)/bin/python -m tests.console.pictures

.PHONY: console-opening
console-opening: browser ## the time from `reexpand console` until a browser shows 100,000 topics
	$(WITH_PROJECT) $(CONSOLE_VENV)/bin/python -m tests.console.opening

DASHBOARD_PAGE := $(CACHE)/dashboard

.PHONY: test-dashboard
test-dashboard: browser ## the dashboard with Grafana's own panels, of a real Prometheus and a live job (needs npm and prometheus)
	mkdir -p $(DASHBOARD_PAGE)
	cp -r tests/dashboard/page/. $(DASHBOARD_PAGE)
	npm ci --prefix $(DASHBOARD_PAGE) --no-audit --no-fund --loglevel error
	npm run --prefix $(DASHBOARD_PAGE) build
	REEXPAND_DASHBOARD=$(DASHBOARD_PAGE)/built $(IN_BROWSER) tests/dashboard

AUDIT_VENV := $(CACHE)/audit

.PHONY: audit
audit: setup ## a bill of materials, and the known vulnerabilities of packages and jars (needs the database of OSV)
	$(UV) venv --quiet --allow-existing --python $(PY) $(AUDIT_VENV)
	$(UV) pip sync --quiet --python $(AUDIT_VENV)/bin/python --require-hashes tests/audit/requirements.txt
	@$(WITH_PROJECT) \
	  $(AUDIT_VENV)/bin/python -m tests.audit.run

DOCS_VENV := $(CACHE)/docs

.PHONY: rules
rules: .venv/.locked ## the rules of the job with their code and tests, in build/rules.md
	mkdir -p build
	.venv/bin/python -m tests.support.rules build/rules.md

.PHONY: docs
docs: .venv/.locked rules ## the documentation as a site in build/site; a link that leads nowhere is an error
	$(UV) venv --quiet --allow-existing --python $(PY) $(DOCS_VENV)
	$(UV) pip sync --quiet --python $(DOCS_VENV)/bin/python --require-hashes docs/site/requirements.txt
	$(DOCS_VENV)/bin/python docs/site/build.py build/site
	@echo "The site is build/site/index.html."

.PHONY: lock
lock: | $(filter .tools/bin/uv,$(UV)) ## write requirements.lock anew from pyproject.toml
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --group dev --all-extras \
	  --no-annotate --custom-compile-command 'make lock' -o requirements.lock pyproject.toml
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra job \
	  --constraints requirements.lock --no-annotate --custom-compile-command 'make lock' -o deploy/requirements.lock pyproject.toml
	for path in tests/bench/peers/requirements{,-flink,-bytewax} {tests/audit,docs/site,tests/console}/requirements; do \
	  $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-annotate --custom-compile-command 'make lock' -o $$path.txt $$path.in || exit; \
	done

.PHONY: clean
clean: ## remove what the other targets made, downloads excepted
	rm -rf .venv .reexpand build .mypy_cache .ruff_cache .pytest_cache .hypothesis
