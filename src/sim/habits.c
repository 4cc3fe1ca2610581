// How habits of other software change a simulated step: the host's share, and the times at which
// gradients are summed.
#include "sim/habits.h"

#include "cost/habits.h"

// Profiles may sum the gradients of many layers at once: the last sum of a bucket carries the time
// of all, the others take none.
status sim_habit_buckets(arena *a, const cost_model *m, const cost_group *groups, const plan *p,
                         int64_t **out)
{
    typedef struct bucket {
        double bytes;
        int32_t last; // the last communication that put bytes into it
    } bucket;
    const cost_habits *h = cost_habits_of(m->profile);
    const double full = (double)h->sum_bytes;
    bucket *open = NULL; // [row of run->groups][all_reduce?]
    *out = NULL;
    if (full <= 0.0 || h->piece_s > 0.0) return ST_OK;
    TRY(arena_new(a, p->comm_count + 1, out));
    TRY(arena_new(a, 2 * p->run->group_count + 1, &open));
    for (int64_t i = 0; i < p->comm_count; i++) (*out)[i] = SIM_ALONE;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        const plan_comm *c = sim_step_sum_of(p, x);
        if (c == NULL || c->compressed) continue;
        bucket *b = &open[2 * c->group + (c->op == COLLECTIVE_ALL_REDUCE ? 1 : 0)];
        if (b->bytes >= full) b->bytes = 0.0;
        if (b->bytes > 0.0) (*out)[b->last] = 0;
        b->bytes += cost_comm_bytes(p, c, groups[c->group].ranks);
        b->last = x->comm;
        (*out)[x->comm] = cost_collective_ns(m, &groups[c->group], c->op, b->bytes);
    }
    return ST_OK;
}

// Actions of the compute stream from one change of micro-batch or direction to the next.
typedef struct pass {
    int64_t begin, end; // actions
    int32_t microbatch;
    bool is_backward;
    bool is_whole; // the gradients of weights are made layer by layer, not put off
} pass;

static bool is_of_pass(const plan_action *x)
{
    return x->kind == ACTION_COMPUTE && x->stream == STREAM_COMPUTE && x->microbatch >= 0;
}

static void pass_add(pass *x, const plan_action *actions, int64_t i)
{
    const plan_action *last = &actions[x->end];
    if (actions[i].list == OP_BACKWARD_WEIGHT && last->layer == actions[i].layer) {
        x->is_whole = true;
    }
    x->end = i;
}

static status passes_make(arena *a, const plan *p, pass **out, int64_t *count)
{
    pass *all = NULL;
    int64_t n = 0;
    TRY(arena_new(a, p->action_count + 1, &all));
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        const bool is_backward = x->list != OP_FORWARD;
        if (!is_of_pass(x)) continue;
        pass *now = n > 0 ? &all[n - 1] : NULL;
        if (now == NULL || now->microbatch != x->microbatch || now->is_backward != is_backward) {
            all[n++] = (pass){
                .begin = i, .end = i, .microbatch = x->microbatch, .is_backward = is_backward};
        } else {
            pass_add(now, p->actions, i);
        }
    }
    *out = all;
    *count = n;
    return ST_OK;
}

// A schedule with both passes at once (SCHEDULE_BOTH) puts the forward pass before the backward
// pass of the other micro-batch; the plan has their actions one after the other.
static bool is_pair(const pass *x, const pass *next)
{
    return !x->is_backward && next->is_backward && next->is_whole &&
           x->microbatch != next->microbatch;
}

status sim_habit_alone(arena *a, const cost_model *m, const plan *p, bool **out)
{
    pass *passes = NULL;
    int64_t count = 0;
    *out = NULL;
    if (!cost_habits_of(m->profile)->ep_pairs) return ST_OK;
    TRY(arena_new(a, p->action_count + 1, out));
    TRY(passes_make(a, p, &passes, &count));
    for (int64_t i = 0; i < p->action_count; i++) (*out)[i] = true;
    for (int64_t k = 0; k + 1 < count; k++) {
        if (!is_pair(&passes[k], &passes[k + 1])) continue;
        for (int64_t i = passes[k].begin; i <= passes[k + 1].end; i++) (*out)[i] = false;
    }
    return ST_OK;
}

// Counts the weights that are whole on each rank of ZeRO-3: one copy for each rank and weight.
static double whole_pieces(const cost_habits *h, const sim_rank *rank)
{
    const plan *p = rank->p;
    const int64_t ranks = plan_zero_size(&rank->mesh);
    double pieces = 0.0;
    bool cuts = false;
    for (int64_t t = 0; t < p->tensor_count && !cuts; t++) {
        cuts = p->tensors[t].is_unsharded && p->tensors[t].kind == PLAN_BYTES_WEIGHTS;
    }
    for (int32_t w = 0; w < p->model->weight_count && cuts; w++) {
        const op_weight *x = &p->model->weights[w];
        const int64_t elements = x->rows * x->columns;
        if (elements >= h->persistent || plan_table_find(p->run, x->name) < 0) continue;
        pieces += (double)min_i64(elements, ranks);
    }
    return pieces;
}

int64_t sim_host_ns(const cost_model *m, const sim_rank *ranks, int32_t count)
{
    const cost_habits *h = cost_habits_of(m->profile);
    double most = 0.0;
    for (int32_t r = 0; r < count && h->piece_s > 0.0 && h->persistent > 0; r++) {
        const double pieces = whole_pieces(h, &ranks[r]);
        if (pieces > most) most = pieces;
    }
    return (int64_t)((h->step_s + most * h->piece_s) * 1e9);
}
