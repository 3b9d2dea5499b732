# Everything that the README promises, from a fresh machine with Python 3.10+, a C++ compiler, make and git.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
# For tests of whole models. It does not require torch, so it leaves the one above alone; it does require Python 3.11.
TRANSFORMERS ?= transformers==5.24.0; python_version >= '3.11'
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# pytest's own settings are in pyproject.toml; add to them with `make test PYTEST="-k linear"`.
PYTEST ?=
# So many processes share the tests, a file at a time.
JOBS ?= 2

SOURCES := $(shell git ls-files --cached --others --exclude-standard CMakeLists.txt pyproject.toml cmake runtime passes python 2>/dev/null)

# What `make release` builds for.
TORCHES ?= $(TORCH) torch==2.14.1
PYTHONS ?= $(PYTHON)
# Where `make wheel` puts its wheel, and the time in it: the same commit gives the same bytes.
DIST ?= dist
NEWEST_WHEEL = $$(ls -t $(DIST)/ipex-*.whl | head -1)
COMMIT_TIME = $${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || date +%s)}
# An environment and a build folder for this torch and this Python alone.
OWN_FOLDER = build/python-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$$(echo "$(TORCH)" | tr -s '<>=!~ ' -)

# For `make fuzz`: how many random models, and the number that they are drawn from.
CASES ?= 10000
SEED ?= 1

# For `make huggingface`: how many classes.
COUNT ?= 50

# For `make test-transformers`: the first, one of the middle, and the newest that is known.
TRANSFORMERS_VERSIONS ?= 5.0.0 5.12.1 5.24.0

# For `make mutants`: how many conditions are removed, drawn by SEED.
MUTANTS ?= 300
# For `make soak`: how long.
MINUTES ?= 5

# Options for `make bench`; `.venv/bin/python -m ipex bench --help` lists them.
BENCH ?=

# Options for `make zoo`; `.venv/bin/python -m benchmarks.zoo --help` lists them. `build/zoo.jsonl` keeps what was done.
ZOO ?= --markdown docs/zoo.md

.PHONY: demo test nightly test-torch test-transformers test-isa fuzz fuzz-ops fuzz-files neighbours mutants threads tsan asan coverage bench op-database huggingface zoo docs lint format wheel try-wheel release release-wheel reproducible sdk fuzz-requests soak faults clean
demo: $(VENV)/installed        ## build, optimise a ResNet-50, compare, time, serve it from C++
	$(BIN)/python examples/demo.py

test: $(VENV)/installed        ## every test, Python and C++
	@echo "make test: every test of Python and C++, about 15 minutes on 2 cores; PYTEST='-k linear' runs some of them"
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST)
	@echo "make test: OK"

# In an environment and a build folder of its own: make test-torch TORCH=torch==2.8.0 PYTHON=python3.12
test-torch:                    ## every test, against another torch or Python
	folder=$(OWN_FOLDER); SKBUILD_BUILD_DIR=$$folder/cmake $(MAKE) test VENV=$$folder/venv

test-transformers: $(VENV)/installed  ## text generation with other versions of transformers
	set -e; for version in $(TRANSFORMERS_VERSIONS); do \
		folder=build/transformers-$$version; \
		test -d $$folder || $(BIN)/pip install --quiet --target $$folder "transformers==$$version"; \
		PYTHONPATH=$$folder $(BIN)/python -m pytest -n $(JOBS) tests/llm tests/optimize/test_language_models.py $(PYTEST); \
		echo "transformers $$version: OK"; done

nightly: $(VENV)/installed     ## the same without samples, and then what looks for bugs
	IPEX_NIGHTLY=1 $(MAKE) test
	$(MAKE) fuzz fuzz-ops fuzz-files fuzz-requests faults soak threads

test-isa: $(VENV)/installed    ## kernels and passes once per level of instructions that this CPU has
	$(BIN)/python tests/each_isa.py $(PYTEST)

coverage: $(VENV)/installed    ## what becomes of well-known models, and why: docs/models.md
	$(BIN)/python tests/model_coverage.py

fuzz: $(VENV)/installed        ## random models against eager: make fuzz CASES=100000 SEED=7
	$(BIN)/python -W ignore tests/fuzz/run.py --cases $(CASES) --seed $(SEED) --jobs 2 --failures build/fuzz-failures

fuzz-ops: $(VENV)/installed    ## every op with arguments that fit, nearly fit, and don't, at each level of instructions
	$(BIN)/python tests/each_isa.py tests/fuzz_ops/run.py --cases $(CASES) --seed $(SEED)

fuzz-files: $(VENV)/installed  ## saved models that are damaged: make fuzz-files CASES=100000 SEED=7
	$(BIN)/python -W ignore tests/fuzz_files/run.py --cases $(CASES) --seed $(SEED)

fuzz-requests: $(VENV)/installed  ## requests that are damaged, to the server: make fuzz-requests CASES=100000 SEED=7
	$(BIN)/python -W ignore tests/consumer/fuzz_requests/run.py --cases $(CASES) --seed $(SEED)
soak: $(VENV)/installed        ## a server's day: results, memory, threads, descriptors: make soak MINUTES=60 SEED=7
	$(BIN)/python -W ignore tests/soak/run.py --minutes $(MINUTES) --seed $(SEED)
faults: $(VENV)/installed      ## memory that runs out, Ctrl-C and forks: make faults CASES=30000 SEED=7
	$(BIN)/python -W ignore tests/faults/run.py --cases $(CASES) --seed $(SEED)

neighbours: $(VENV)/installed  ## NaN and infinity beside 16-bit products and convolutions: make neighbours CASES=20000 SEED=1
	PYTHONPATH=tests $(BIN)/python -W ignore tests/neighbours/search.py --cases $(CASES) --seed $(SEED)

mutants: $(VENV)/installed     ## which conditions of passes and runtime no test needs: make mutants MUTANTS=500 SEED=7
	$(BIN)/python tests/mutants/run.py --count $(MUTANTS) --seed $(SEED)

threads: $(VENV)/installed     ## 64 threads, 10,000 calls each, on one module: results and memory
	PYTHONPATH=examples $(BIN)/python tests/threads/many_threads.py

tsan: $(VENV)/installed        ## the same, shorter, on libraries that are built with ThreadSanitizer
	PYTHONPATH=examples $(BIN)/python tests/threads/run_tsan.py

asan: $(VENV)/installed        ## passes and ops on libraries that are built with AddressSanitizer: make asan TESTS=tests/optim
	$(BIN)/python tests/run_asan.py $(TESTS)

huggingface: $(VENV)/installed ## classes of transformers drawn by seed: make huggingface COUNT=50 SEED=7
	$(BIN)/python -W ignore tests/huggingface_classes.py --count $(COUNT) --seed $(SEED)

op-database: $(VENV)/installed ## each op of PyTorch's own op database between packed ops, against eager
	$(BIN)/python -W ignore tests/op_database/run.py --jobs 2 --failures build/op-database-failures.txt

bench: $(VENV)/installed       ## well-known models in ipex and its peers: build/bench; make bench BENCH="--threads 4"
	@grep -v '^#' benchmarks/requirements-peers.txt | while read -r peer; do \
		$(BIN)/pip install --quiet "$$peer" || echo "make bench: no $$peer, goes on without" >&2; done
	$(BIN)/python -m ipex bench --models all --json build/bench/bench.json \
		--markdown build/bench/bench.md --chart build/bench/bench.svg \
		--log build/bench/bench.log $(BENCH)

zoo: $(VENV)/installed build/zoo-packages  ## real models against eager and frozen TorchScript: make zoo ZOO="--sample 40"
	PYTHONPATH=build/zoo-packages $(BIN)/python -m benchmarks.zoo $(ZOO)

build/zoo-packages: benchmarks/zoo/requirements.txt $(VENV)/tools
	$(BIN)/pip install --quiet --no-deps --upgrade --target $@ -r $< || echo "make zoo: goes on without" >&2
	mkdir -p $@ && touch $@

docs: $(VENV)/docs             ## the documentation as a site, in build/docs
	$(BIN)/python docs/generate.py
	$(BIN)/python benchmarks/results/page.py
	$(BIN)/mkdocs build --quiet
	@echo "make docs: build/docs/index.html"

lint: $(VENV)/installed        ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files '*.cpp' '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	@echo "make lint: OK"

format: $(VENV)/installed      ## put the code into house form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.cpp' '*.h' | xargs $(BIN)/clang-format -i

wheel: $(VENV)/tools           ## a wheel in dist/
	SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(BIN)/pip wheel --no-build-isolation --no-deps -w $(DIST) .
	$(BIN)/python cmake/sort_wheel.py "$(NEWEST_WHEEL)"

try-wheel: wheel               ## install it where there is no compiler, and run a model
	$(BIN)/python tests/wheel/try_wheel.py "$(NEWEST_WHEEL)" "$(TORCH)"

release:                       ## wheels for TORCHES and PYTHONS, tried, with SBOMs and SHA256SUMS: dist/release
	rm -rf dist/release
	@set -e; for python in $(PYTHONS); do for torch in $(TORCHES); do \
		$(MAKE) release-wheel PYTHON=$$python TORCH=$$torch; done; done
	$(PYTHON) cmake/finish_release.py dist/release
# The path of the build tree in the libraries would leave a gap of its length when they are installed.
release-wheel: export CMAKE_ARGS := -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
release-wheel:
	folder=$(OWN_FOLDER); SKBUILD_BUILD_DIR=$$folder/cmake $(MAKE) try-wheel VENV=$$folder/venv \
		DIST=dist/release/$$(echo "$(TORCH)" | tr -s '<>=!~ ' -)

# Its own clone, oneDNN and environments, and no compiler cache.
reproducible:                  ## builds this commit's release once more, elsewhere: the same bytes as in dist/release
	rm -rf build/reproducible
	git clone --quiet . build/reproducible/clone
	PIP_CACHE_DIR="$$($(PYTHON) -m pip cache dir)" XDG_CACHE_HOME="$(CURDIR)/build/reproducible/cache" CCACHE_DISABLE=1 \
		$(MAKE) -C build/reproducible/clone release
	$(PYTHON) tests/wheel/same_bytes.py dist/release build/reproducible/clone/dist/release

# The folder is the archive, unpacked: what is tried there is what is given away.
sdk: $(VENV)/tools             ## headers, libraries, CMake and pkg-config files for C++ alone: dist/ipex-*.tar.gz, dist/sdk
	cmake -G Ninja -S . -B build/sdk -DIPEX_BUILD_PYTHON=OFF -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"
	cmake --build build/sdk
	rm -rf dist/sdk dist/ipex-*.tar.gz build/sdk/package
	cpack --config build/sdk/CPackConfig.cmake -B build/sdk/package
	mkdir -p dist/sdk
	mv build/sdk/package/ipex-*.tar.gz dist
	tar -xzf dist/ipex-*.tar.gz -C dist/sdk --strip-components=1
	@echo "make sdk: $$(ls dist/ipex-*.tar.gz)"

clean:                         ## all but the cached oneDNN
	rm -rf $(VENV) build dist

# oneDNN is compiled while pip fetches torch, and the build of ipex waits for it if it has to.
$(VENV)/tools:
	@PYTHON="$(PYTHON)" sh cmake/check_prerequisites.sh
	@echo "make: 1 of 3, tools and torch into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23"
	$(BIN)/pip install --quiet "cmake>=3.25,<4" ninja
	@$(BIN)/python cmake/show_progress.py oneDNN build/onednn.log \
		$(BIN)/cmake -G Ninja -S cmake/onednn/ahead -B build/onednn-ahead & \
	$(BIN)/pip install --quiet "$(TORCH)" && \
	$(BIN)/pip install --quiet "scikit-build-core>=1.0" "pytest>=8" "pytest-xdist>=3" "hypothesis>=6" numpy expecttest scikit-learn safetensors rich \
		"$(TRANSFORMERS)" ruff==0.17.5 mypy==2.4.1 clang-format==18.1.8 && \
	{ echo "make: 2 of 3, oneDNN, if it is not in the cache"; wait; }
	touch $@

$(VENV)/installed: $(VENV)/tools $(SOURCES)
	@echo "make: 3 of 3, ipex"
	@$(BIN)/python cmake/show_progress.py ipex build/install.log \
		$(BIN)/pip install --verbose --no-build-isolation --no-deps .
	touch $@

$(VENV)/docs: $(VENV)/installed
	$(BIN)/pip install --quiet "mkdocs==1.6.1"
	touch $@
