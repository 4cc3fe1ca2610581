#!/bin/bash
# The long form of cli/plan_bound_test: least times and bytes of some 1,000 layouts of each of its models against plays.
set -eu
export LAYOUTS=${LAYOUTS:-1000}
exec "$(dirname "$TRIREME")/tests/cli_plan_bound_test"
