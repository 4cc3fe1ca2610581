#!/bin/bash
# Two hosts with GPUs that are no GPUs (tests/hosts_test.sh, tests/cuda_test.sh).
HOSTS_GPUS=1 exec bash tests/hosts_test.sh
