#!/bin/bash
# The questions of `trireme plan` for a model of 405B parameters on a large cluster: each has an answer, which takes about
# four seconds of processor time and as much to clear memory. The limit finds a search that grows, whatever else this
# machine does.
set -u -o pipefail
. tests/support/named.sh

for question in --min-devices --max-model "--days 400 cluster.devices=2048" "--budget 1e9 cluster.devices=2048" \
    "--max-model cluster.devices=512" "--days 100 cluster.devices=16384" "--budget 1e8 cluster.devices=16384"; do
    code "405B $question in seconds" 0 bash -c 'ulimit -t 60; exec "$@"' - "$trireme" plan llama3.1-405b --cluster h100 $question train.tokens=1e12
    says "an answer" out '^answer +[0-9,]+ (devices|layers)'
done
[ $failures = 0 ]
