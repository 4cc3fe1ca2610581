#!/bin/bash
# One digest of a mixture of experts over a few layouts of tests/support/expert_layouts.sh; the night's
# test runs all of them.
set -u
every=13
. tests/support/expert_layouts.sh
