#!/usr/bin/env bash
# All lines of tests/wrong_inputs_test.sh.
INPUTS_PART=1 bash tests/wrong_inputs_test.sh
