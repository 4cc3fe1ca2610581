#!/bin/bash
# The long form of comm/algo_test: every algorithm, operation, type, reduction, 1 to 9 ranks, sizes to 1 MiB + 1.
set -eu
export WHOLE_PRODUCT=1
exec "$(dirname "$TRIREME")/tests/comm_algo_test"
