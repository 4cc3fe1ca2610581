#!/bin/bash
# tests/cuda_generate_test.sh with all reference models and layouts.
CUDA_NIGHT=1 exec bash tests/cuda_generate_test.sh
