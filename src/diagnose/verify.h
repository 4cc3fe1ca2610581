// `verify`: checks that the plans of all ranks of a configuration fit together. Starts nothing.
#ifndef DIAGNOSE_VERIFY_H
#define DIAGNOSE_VERIFY_H

#include "assemble/prove.h"

// Chooses the micro-batch first, as a run does. Fails with ST_BROKEN_PLAN, or as assemble_rank()
// does.
NODISCARD status diagnose_verify(const host *h, arena *a, run_config *r, const decoder_spec *spec,
                                 assemble_proved *out);

#endif
