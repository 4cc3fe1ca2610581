#!/bin/bash
# The long form of the daily test: every call of every kind.
set -u
ALL=1 exec bash tests/ckpt_syscalls_test.sh
