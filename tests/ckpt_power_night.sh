#!/bin/bash
# The long form of the daily test, with another seed every night; a failure prints the seed.
set -u
CUTS=${CUTS:-1000} SEED=${SEED:-$RANDOM} exec bash tests/ckpt_power_test.sh
