#!/bin/bash
# The same, long, with another seed every night: a failure prints it.
set -u
CUTS=${CUTS:-1000} SEED=${SEED:-$RANDOM} exec bash tests/ckpt_power_test.sh
