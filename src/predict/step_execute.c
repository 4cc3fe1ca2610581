// `simulate --execute`: the executor runs the step once more and must take the time that the
// simulator found.
#include "predict/step.h"

status predict_step_execute(arena *a, const predict_step *x, sim_executed *out)
{
    const cost_model prices = predict_prices(x->of);
    const int64_t host_ns = sim_host_ns(&prices, x->ranks, x->stages);
    TRY(sim_execute(a, &prices, x->ranks, x->stages, host_ns, SIM_STEPS, out));
    if (out->step_ns != x->step->step_ns || out->first_ns != x->step->first_ns) {
        return fail(ST_BROKEN_PLAN,
                    "the executor takes %lld ns for the step and %lld for the first, the "
                    "simulator takes %lld and %lld",
                    (long long)out->step_ns, (long long)out->first_ns, (long long)x->step->step_ns,
                    (long long)x->step->first_ns);
    }
    if (out->touched_bytes == out->arena_bytes) return ST_OK;
    return fail(ST_BROKEN_PLAN, "the executor touches %lld bytes of an arena of %lld",
                (long long)out->touched_bytes, (long long)out->arena_bytes);
}
