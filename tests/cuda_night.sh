#!/bin/bash
# tests/cuda_test.sh with the pairings that are too slow for every day.
CUDA_NIGHT=1 exec bash tests/cuda_test.sh
