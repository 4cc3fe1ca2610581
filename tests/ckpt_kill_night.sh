#!/bin/bash
# The same, long, with another seed every night: a failure prints it.
set -u
KILLS=${KILLS:-1000} SEED=${SEED:-$RANDOM} exec bash tests/ckpt_kill_test.sh
