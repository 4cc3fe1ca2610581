#!/bin/bash
# The long form of train/layouts_test: 120 random layouts of each kind of model, 30 steps each.
set -eu
LAYOUTS=${LAYOUTS:-120} STEPS=${STEPS:-30} SEED=${SEED:-$RANDOM}
export LAYOUTS STEPS SEED
echo "SEED=$SEED"
exec "$(dirname "$TRIREME")/tests/train_layouts_test"
