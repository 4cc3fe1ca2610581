#!/bin/bash
# `serve` among 10,000 requests that are damaged, cut off or of a wrong length, and all requests to two ranks.
HOSTILE_REQUESTS=10000 bash tests/serve_test.sh || exit $?
HOSTILE_REQUESTS=1000 SERVE_KEYS="determinism.tp_shards=2 layout.tp=2" exec bash tests/serve_test.sh
