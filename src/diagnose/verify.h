// `verify`: whether the plans of all ranks of a configuration fit together. Starts nothing.
#ifndef DIAGNOSE_VERIFY_H
#define DIAGNOSE_VERIFY_H

#include "assemble/prove.h"

// Chooses the micro-batch first, as a run does. ST_BROKEN_PLAN, or what assemble_rank refuses.
NODISCARD status diagnose_verify(const host *h, arena *a, run_config *r, const decoder_spec *spec,
                                 assemble_proved *out);

#endif
