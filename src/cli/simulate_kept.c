// What software whose attention is not fused keeps of it: of every score some bytes (the softmax, the mask of
// its dropout, what dropout left), from its forward until its backward. Our plans have none of them, so they
// are counted here, from the same actions: layers x micro-batches that are between the two.
#include "cli/simulate.h"

// Attentions among the operations of an action.
static int32_t attentions(const plan *p, const plan_action *x, op_code code)
{
    const op_program *program = p->bindings[x->binding].program;
    int32_t count = 0;
    for (int32_t i = 0; i < x->ops_count; i++) {
        count += program->lists[x->list].nodes[x->ops_begin + i].code == code ? 1 : 0;
    }
    return count;
}

static bool is_recomputed(const plan *p, const plan_action *x)
{
    const op_program *program = p->bindings[x->binding].program;
    const op_list list = OP_RECOMPUTE;
    for (int32_t i = 0; i < program->lists[list].count; i++) {
        if (program->lists[list].nodes[i].code == OP_ATTENTION) return true;
    }
    return false;
}

int64_t simulate_score_bytes(const simulated *x, int32_t stage)
{
    const plan *p = x->ranks[stage].p;
    const run_config *r = x->of->r;
    int64_t live = 0, most = 0;
    if (x->of->profile.score_bytes <= 0.0) return 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *action = &p->actions[i];
        if (action->kind != ACTION_COMPUTE) continue;
        const bool makes = action->list == OP_RECOMPUTE ||
                           (action->list == OP_FORWARD && !is_recomputed(p, action));
        if (makes) live += attentions(p, action, OP_ATTENTION);
        most = max_i64(most, live);
        live -= attentions(p, action, OP_ATTENTION_BWD);
    }
    const double scores = (double)x->of->spec.heads / (double)r->layout.tp * (double)r->train.seq *
                          (double)r->train.seq / (double)r->layout.cp * (double)x->micro_batch;
    return (int64_t)(scores * x->of->profile.score_bytes * (double)most);
}
