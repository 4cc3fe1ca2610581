// Private to assemble/: the plans that draw completions.
#ifndef ASSEMBLE_ROLLOUTS_H
#define ASSEMBLE_ROLLOUTS_H

#include "assemble/assemble.h"

// Adds them to the job's plans, from its request, which it changes.
NODISCARD status assemble_rollouts(arena *a, const assemble_options *o, plan_request *request,
                                   assemble_plans *out);

#endif
