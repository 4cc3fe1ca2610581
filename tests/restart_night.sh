#!/bin/bash
# tests/restart_test.sh with longer runs and more faults, for several seeds.
set -u
for seed in $(seq "${RESTART_SEEDS:-20}"); do
    RESTART_STEPS=2000 RESTART_SECONDS=40 RESTART_SEED=$seed bash tests/restart_test.sh || { echo "seed $seed"; exit 1; }
done
