#!/bin/bash
# `serve` among 10,000 requests that are damaged, cut off or of a wrong length.
HOSTILE_REQUESTS=10000 exec bash tests/serve_test.sh
