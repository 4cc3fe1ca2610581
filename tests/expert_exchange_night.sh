#!/bin/bash
# The long form of expert_exchange_test: 10,000 routings for each number of ranks.
set -eu
ROUTINGS=${ROUTINGS:-10000} exec "$(dirname "$TRIREME")/tests/all_expert_exchange_test"
