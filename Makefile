# A thin front for CMake: each target is a line or two. `make` builds build/trireme.
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX  ?= /usr/local
export JOBS

.PHONY: all demo test test-night test-slurm test-cuda cuda-bundle validate bench install clean
all:
	@tools/install_packages build
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build.log 2>&1 || \
		{ cat build.log; exit 1; }
	@rm -f build.log
	@ninja -C build -j$(JOBS) trireme

# Trains a small model on a public-domain text and lets it speak (about two minutes).
demo: all
	@tools/demo

# Every check of a commit: two compilers, sanitizers, fuzzing, the rules of style (at most 15 minutes on two cores).
test:
	@tools/install_packages test
	@tools/run_tests

# Jobs under a real Slurm on this machine alone (root; installs Slurm, Open MPI's launcher and munge).
test-slurm: all
	@tools/install_packages slurm
	@SLURM_LOST=1 TRIREME=$(CURDIR)/build/trireme bash tests/slurm_test.sh
	@TRIREME=$(CURDIR)/build/trireme bash tests/mpirun_test.sh

# On a machine with an NVIDIA GPU: the kernels against the reference, training, speeds (results in cuda_try/).
test-cuda: all
	@ninja -C build -j$(JOBS) kernels_gpu_test cuda_kernels
	@tools/cuda_try build

# The same for a machine where nothing can be built.
cuda-bundle: all
	@ninja -C build -j$(JOBS) kernels_gpu_test cuda_kernels
	@tools/cuda_bundle build

# The long forms (hours).
test-night:
	@tools/install_packages test
	@tools/run_tests night

# What is predicted against published figures, per source and profile (../shared/validation).
validate: all
	@study/validate build/trireme

bench: all
	@bench/run

install: all
	@cmake --install build --strip

clean:
	rm -rf build build-clang build-debug build-asan build-tsan
