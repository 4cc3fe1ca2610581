# A thin front for CMake: each target is a line or two. `make` builds build/trireme.
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX  ?= /usr/local
export JOBS

<<<<<<< HEAD
.PHONY: all demo test test-night test-slurm test-cuda cuda-bundle validate bench install clean
=======
.PHONY: all demo test test-night test-slurm test-cuda validate bench install clean
>>>>>>> ef089d89 (kernels: masks of attention in few registers, tests over several tiles)
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
	@TRIREME=$(CURDIR)/build/trireme bash tests/slurm_test.sh
	@TRIREME=$(CURDIR)/build/trireme bash tests/mpirun_test.sh

<<<<<<< HEAD
# On a machine with an NVIDIA GPU: the kernels against the reference, training, speeds (results in cuda_try/).
test-cuda: all
	@ninja -C build -j$(JOBS) kernels_gpu_test cuda_kernels
	@tools/cuda_try build

# The same for a machine where nothing can be built.
cuda-bundle: all
	@ninja -C build -j$(JOBS) kernels_gpu_test cuda_kernels
	@tools/cuda_bundle build
=======
# The kernels of NVIDIA GPUs on this machine's GPU: each operation against the reference, then speeds as lines of JSON.
test-cuda:
	@tools/install_packages test
	@cmake --preset release >/dev/null
	@ninja -C build -j$(JOBS) cuda_kernels kernels_gpu_test
	@GPU_SPEED=1 build/tests/kernels_gpu_test
>>>>>>> ef089d89 (kernels: masks of attention in few registers, tests over several tiles)

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
