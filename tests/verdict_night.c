// The same verdicts and kills, many more of them.
#define VERDICT_TRIALS 200
#define VERDICT_KILLS  500
#include "tests/verdict_test.c"
