#!/bin/bash
# The same, every call of every kind.
set -u
ALL=1 exec bash tests/ckpt_syscalls_test.sh
