#!/bin/bash
# One digest of a mixture of experts over every layout of the table in tests/support/expert_layouts.sh.
set -u
every=1
. tests/support/expert_layouts.sh
