#!/usr/bin/env bash
# All lines of tests/keys_test.sh.
KEYS_PART=1 bash tests/keys_test.sh
