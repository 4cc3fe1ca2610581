#!/bin/bash
# The long form of sim/execute_test: 1,000 random layouts by the executor in virtual time and by the player.
set -eu
export SIM_LAYOUTS=${SIM_LAYOUTS:-1000}
exec "$(dirname "$TRIREME")/tests/sim_execute_test"
