#!/bin/bash
# The questions of `trireme plan` for a model of 405B parameters on a large cluster: each has an answer, and within
# 100 s on any machine (docs give the times of a quiet one).
set -u -o pipefail
. tests/support/named.sh

for question in --min-devices --max-model "--days 400 cluster.devices=2048" "--budget 1e9 cluster.devices=2048"; do
    code "405B $question within 100 s" 0 timeout 100 "$trireme" plan llama3.1-405b --cluster h100 $question train.tokens=1e12
    says "an answer" out '^answer +[0-9,]+ (devices|layers)'
done
[ $failures = 0 ]
