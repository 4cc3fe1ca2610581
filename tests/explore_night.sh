#!/bin/bash
# The long form of control/explore_test: every pair of crashes, and 50,000 seeds.
set -eu
export EXPLORE_SEEDS=${EXPLORE_SEEDS:-50000}
exec "$(dirname "$TRIREME")/tests/control_explore_test"
