// Callers hang probes on nodes of a plan, which follow these nodes, and seals, which their calls
// get.
#include "exec/exec_internal.h"

plan_state *exec_state_of(exec *e, const plan *p)
{
    plan_state *s = e->plans;
    while (s->p != p) ASSERT(++s < e->plans + e->config.plan_count);
    return s;
}

void exec_probes_set(exec *e, const plan *p, const exec_probe *probes, int64_t count)
{
    exec_state_of(e, p)->probes = probes;
    exec_state_of(e, p)->probe_count = probes != NULL ? count : 0;
}

const exec_probe *exec_probes_of(exec *e, const plan *p, int64_t *count)
{
    const plan_state *s = exec_state_of(e, p);
    *count = s->probe_count;
    return s->probes;
}

void exec_seals_set(exec *e, const plan *p, const exec_seal *seals, int64_t count)
{
    exec_state_of(e, p)->seals = seals;
    exec_state_of(e, p)->seal_count = seals != NULL ? count : 0;
}

const kern_seal *exec_seal_of(const plan_state *s, int64_t action, int64_t node)
{
    int64_t low = 0, high = s->seal_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const exec_seal *x = &s->seals[middle];
        if (x->action == action && x->node == node) return &x->seal;
        const bool is_before = x->action != action ? x->action < action : x->node < node;
        if (is_before) low = middle + 1;
        if (!is_before) high = middle;
    }
    return NULL;
}
