#!/bin/bash
# The long form of the daily test, with another seed every night; a failure prints the seed.
set -u
KILLS=${KILLS:-1000} SEED=${SEED:-$RANDOM} exec bash tests/ckpt_kill_test.sh
