#!/bin/bash
# The long forms of control/explore_test (every pair of crashes) and control/quorum_test (more events in
# every order), both with 50,000 seeds, and of control/soak_test (a day).
set -eu
export EXPLORE_SEEDS=${EXPLORE_SEEDS:-50000}
SOAK_HOURS=${SOAK_HOURS:-24} "$(dirname "$TRIREME")/tests/control_soak_test"
"$(dirname "$TRIREME")/tests/control_quorum_test"
exec "$(dirname "$TRIREME")/tests/control_explore_test"
