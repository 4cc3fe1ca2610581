// The same crash states and failing calls, many more of them.
#define CKPT_CRASH_NIGHT 1
#include "tests/ckpt_crash_test.c"
