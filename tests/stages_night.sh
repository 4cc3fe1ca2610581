#!/bin/bash
# stages_test.sh with a chain that is killed 50 times.
KILLS=50 exec bash tests/stages_test.sh
