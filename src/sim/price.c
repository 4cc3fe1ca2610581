// Prices the actions of a plan. Layers of one kind share a program, and most actions are lists of
// the same few programs on equal numbers of rows, so this file keeps prices of lists as prefix sums
// over their nodes and looks them up. Optimizer programs occur once each.
#include "cost/habits.h"
#include "sim/habits.h"

#include <string.h>

enum { MEMO_SLOTS = 4096 };

// Sums over the nodes before one: their time, the host's time to issue them, and the number for
// which the host waits.
typedef struct before {
    int64_t ns, issue, waits;
} before;

typedef struct memo {
    const op_program *program;
    int32_t list, sequences, positions;
    before *sums; // [node + 1]
} memo;

typedef struct price_memo {
    int64_t ns, held;
    bool is_known;
} price_memo;

typedef struct pricer {
    arena *a;
    const cost_model *m;
    const sim_rank *rank;
    memo *memos; // [MEMO_SLOTS]
    int64_t memo_count;
    cost_group *groups; // [row of run->groups]
    sim_sums sums;
    price_memo *collectives; // [communication], which several actions may have
    bool *alone;             // [action] sim_habit_alone(); NULL: the profile does not ask
} pricer;

static extent_binding bound_of(const plan *p, const plan_action *x)
{
    const int64_t sequences = x->sequence_count > 0 ? x->sequence_count : p->micro_batch;
    return plan_bound(p, sequences, x->position_count);
}

static status sums_make(pricer *s, const op_program *program, int32_t list,
                        const extent_binding *bound, before **out)
{
    const int64_t count = program->lists[list].count;
    before *sums = NULL;
    TRY(arena_new(s->a, count + 1, &sums));
    for (int64_t i = 0; i < count; i++) {
        const op_node *node = &program->lists[list].nodes[i];
        sums[i + 1] =
            (before){.ns = sums[i].ns + cost_node_ns(s->m, program, node, bound),
                     .issue = sums[i].issue + cost_issue_ns(s->m, node),
                     .waits = sums[i].waits + (cost_host_waits(s->m, node->code) ? 1 : 0)};
    }
    *out = sums;
    return ST_OK;
}

static status sums_of(pricer *s, const op_program *program, const plan_action *x, before **out)
{
    const extent_binding bound = bound_of(s->rank->p, x);
    uint64_t at = (uint64_t)(uintptr_t)program / 64 * UINT64_C(0x9e3779b97f4a7c15);
    at ^= (uint64_t)(x->list * 131 + x->sequence_count * 31 + x->position_count);
    for (at %= MEMO_SLOTS; s->memos[at].program != NULL; at = (at + 1) % MEMO_SLOTS) {
        const memo *m = &s->memos[at];
        if (m->program == program && m->list == x->list && m->sequences == x->sequence_count &&
            m->positions == x->position_count) {
            *out = m->sums;
            return ST_OK;
        }
    }
    TRY(sums_make(s, program, x->list, &bound, out));
    if (s->memo_count >= MEMO_SLOTS / 2) return ST_OK;
    s->memo_count++;
    s->memos[at] = (memo){program, x->list, x->sequence_count, x->position_count, *out};
    return ST_OK;
}

// The next action on the compute stream at or after `from`; -1: there is none.
static int64_t next_compute(const plan *p, int64_t from)
{
    for (int64_t i = from; i < p->action_count; i++) {
        if (p->actions[i].stream == STREAM_COMPUTE) return i;
    }
    return -1;
}

// True for a sum of gradients that runs once in a step, not with every micro-batch.
static bool is_step_sum(const plan *p, const plan_comm *c)
{
    if (c->op != COLLECTIVE_ALL_REDUCE && c->op != COLLECTIVE_REDUCE_SCATTER) return false;
    const plan_tensor *t = plan_tensor_at(p, p->items[c->items_begin].in);
    return t->kind == PLAN_BYTES_GRADIENTS && !t->is_unsharded;
}

// The communication of an action that sums gradients once in a step, overlapped with compute; NULL
// for other actions.
const plan_comm *sim_step_sum_of(const plan *p, const plan_action *x)
{
    if (x->kind != ACTION_COMMUNICATE || x->stream == STREAM_COMPUTE) return NULL;
    const plan_comm *c = &p->comms[x->comm];
    return is_step_sum(p, c) ? c : NULL;
}

status sim_sums_make(arena *a, const cost_model *m, const cost_group *groups, const plan *p,
                     sim_sums *out)
{
    int64_t *late = NULL; // [row of run->groups]
    int32_t *last = NULL; // [the same] its last communication; -1: it has none
    TRY(arena_new(a, p->comm_count + 1, &out->tail));
    TRY(arena_new(a, p->run->group_count + 1, &late));
    TRY(arena_new(a, p->run->group_count + 1, &last));
    for (int64_t g = 0; g < p->run->group_count; g++) last[g] = -1;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        const plan_comm *c = sim_step_sum_of(p, x);
        if (c == NULL) continue;
        const double overlap = cost_overlap(m->profile, &groups[c->group], true);
        late[c->group] +=
            (int64_t)((double)cost_comm_ns(m, &groups[c->group], p, c) * (1.0 - overlap));
        last[c->group] = x->comm;
    }
    for (int64_t g = 0; g < p->run->group_count; g++) {
        if (last[g] >= 0) out->tail[last[g]] = late[g];
    }
    return sim_habit_buckets(a, m, groups, p, &out->ns);
}

void sim_collective_price(const cost_model *m, const cost_group *g, const plan *p,
                          const plan_comm *c, bool overlapped, int64_t *ns, int64_t *held)
{
    const double share = cost_overlap(m->profile, g, overlapped);
    const double overlap = overlapped && is_step_sum(p, c) ? 1.0 : share;
    const int64_t whole = cost_comm_ns(m, g, p, c);
    *ns = overlapped ? whole : (int64_t)((double)whole * (1.0 - overlap));
    // The receiver waits anyway, also for the work on the pieces that arrive.
    const bool holds = overlapped && c->op != COLLECTIVE_RECEIVE;
    const int64_t there =
        c->op == COLLECTIVE_SEND ? cost_pieces_ns(m, g, cost_comm_bytes(p, c, g->ranks)) : 0;
    *held = holds ? (int64_t)((double)(whole - there) * (1.0 - overlap + cost_crowding(m, g))) : 0;
}

static status collective_price(pricer *s, int64_t action, sim_prices *out)
{
    const plan *p = s->rank->p;
    const plan_action *x = &p->actions[action];
    const plan_comm *c = &p->comms[x->comm];
    price_memo *collective = &s->collectives[x->comm];
    if (!collective->is_known) {
        sim_collective_price(s->m, &s->groups[c->group], p, c, x->stream != STREAM_COMPUTE,
                             &collective->ns, &collective->held);
        collective->is_known = true;
    }
    out->ns[action] = sim_sum_ns(&s->sums, x->comm, collective->ns);
    if (s->alone != NULL && s->alone[action] && sim_is_of_experts(&s->groups[c->group], x)) {
        out->ns[action] = cost_comm_ns(s->m, &s->groups[c->group], p, c);
        return ST_OK;
    }
    if (s->sums.tail[x->comm] > 0) {
        if (out->tail == NULL) TRY(arena_new(s->a, p->action_count + 1, &out->tail));
        out->tail[action] = s->sums.tail[x->comm];
    }
    const int64_t next = collective->held > 0 ? next_compute(p, action) : -1;
    if (next < 0) return ST_OK;
    int64_t **of = &out->held[traffic_of(p->run->groups[c->group].axes)];
    if (*of == NULL) TRY(arena_new(s->a, p->action_count + 1, of));
    (*of)[next] += collective->held;
    return ST_OK;
}

// The host copies the step block and the batch; each is one copy.
static int64_t copies_ns(const pricer *s)
{
    const plan *p = s->rank->p;
    const plan_table *run = p->run;
    const int64_t own = p->own_sequences / p->micro_batch;
    const int64_t all = s->rank->microbatches > 0 ? s->rank->microbatches : own;
    int64_t ns = cost_copy_ns(s->m, (double)offsetof(step_block, device));
    for (int64_t i = 0; i < run->count; i++) {
        if (strncmp(run->tensors[i].name, "batch.", 6) != 0) continue;
        const int64_t bytes = run->tensors[i].bytes / own * all + run->tensors[i].bytes % own;
        ns += cost_copy_ns(s->m, (double)bytes);
    }
    return ns;
}

static status action_price(pricer *s, int64_t action, sim_prices *out)
{
    const plan *p = s->rank->p;
    const plan_action *x = &p->actions[action];
    before *sums = NULL;
    switch (x->kind) {
    case ACTION_COMPUTE:
    case ACTION_OPTIMIZER: {
        TRY(sums_of(s, p->bindings[x->binding].program, x, &sums));
        const before *from = &sums[x->ops_begin], *to = &sums[x->ops_begin + x->ops_count];
        out->ns[action] = to->ns - from->ns;
        if (out->issue == NULL || x->kind == ACTION_OPTIMIZER)
            return ST_OK; // updates are few kernels
        out->issue[action] = to->issue - from->issue;
        out->waits[action] = to->waits > from->waits;
        return ST_OK;
    }
    case ACTION_COMMUNICATE:
        return collective_price(s, action, out);
    case ACTION_COPY:
        out->ns[action] = copies_ns(s);
        return ST_OK;
    case ACTION_READBACK:
        out->ns[action] = cost_copy_ns(s->m, (double)plan_readback_bytes(p));
        return ST_OK;
    case ACTION_KIND_COUNT:
    default:
        return fail(ST_INTERNAL, "an action of kind %d", (int)x->kind);
    }
}

void sim_groups_of(const cost_model *m, const sim_rank *rank, cost_group *out)
{
    const plan_table *run = rank->p->run;
    const int64_t same_rows = cost_same_rows(rank->p->model, plan_mesh_size(&rank->mesh, AXIS_TP));
    for (int64_t g = 0; g < run->group_count; g++) {
        const group_use use = run->groups[g].use;
        cost_group_of(m->c, &rank->mesh, &run->groups[g], &out[g]);
        if (use == GROUP_LINK_FORWARD || use == GROUP_LINK_BACKWARD) out[g].same_rows = same_rows;
    }
}

status sim_price(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                 sim_prices *out)
{
    pricer s = {.a = a, .m = m};
    TRY(arena_new(a, MEMO_SLOTS, &s.memos));
    for (int32_t r = 0; r < count; r++) {
        const plan *p = ranks[r].p;
        s.rank = &ranks[r];
        TRY(arena_new(a, p->run->group_count + 1, &s.groups));
        sim_groups_of(m, &ranks[r], s.groups);
        memset(out[r].held, 0, sizeof(out[r].held));
        TRY(arena_new(a, p->action_count + 1, &out[r].ns));
        out[r].tail = NULL;
        out[r].issue = NULL;
        out[r].waits = NULL;
        if (cost_has_host(m->profile)) {
            TRY(arena_new(a, p->action_count + 1, &out[r].issue));
            TRY(arena_new(a, p->action_count + 1, &out[r].waits));
        }
        TRY(sim_sums_make(a, m, s.groups, p, &s.sums));
        TRY(arena_new(a, p->comm_count + 1, &s.collectives));
        TRY(sim_habit_alone(a, m, p, &s.alone));
        for (int64_t i = 0; i < p->action_count; i++) TRY(action_price(&s, i, &out[r]));
    }
    return ST_OK;
}

// ---- layers ------------------------------------------------------------------------------------

static int64_t list_ns(const cost_model *m, const op_program *p, op_list list,
                       const extent_binding *bound)
{
    int64_t ns = 0;
    for (int64_t i = 0; i < p->lists[list].count; i++) {
        ns += cost_node_ns(m, p, &p->lists[list].nodes[i], bound);
    }
    return ns;
}

static double program_flops(const op_program *p, const extent_binding *bound)
{
    double flops = 0.0;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            flops += op_node_cost(p, &p->lists[list].nodes[i], bound).flops;
        }
    }
    return flops;
}

// Time of the collectives between GEMMs in the first micro-batch of the kind's first layer on this
// rank.
static int64_t layer_collectives(pricer *s, int32_t layer)
{
    const plan *p = s->rank->p;
    int64_t ns = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        if (x->kind != ACTION_COMMUNICATE || x->layer != layer || x->microbatch != 0) continue;
        const plan_comm *c = &p->comms[x->comm];
        ns += cost_comm_ns(s->m, &s->groups[c->group], p, c);
    }
    return ns;
}

static void layer_fill(pricer *s, int32_t layer, sim_layer *out)
{
    const plan *p = s->rank->p;
    const op_model *m = p->model;
    const op_program *program = m->programs[m->layers[layer].program];
    const plan_action whole = {0};
    const extent_binding bound = bound_of(p, &whole);
    out->name = m->layers[layer].name;
    out->forward_ns = list_ns(s->m, program, OP_FORWARD, &bound);
    out->recompute_ns = list_ns(s->m, program, OP_RECOMPUTE, &bound);
    out->backward_ns = list_ns(s->m, program, OP_BACKWARD_INPUT, &bound) +
                       list_ns(s->m, program, OP_BACKWARD_WEIGHT, &bound);
    out->flops = program_flops(program, &bound);
    for (int64_t t = 0; t < program->tensor_count; t++) {
        // Tensors that a pass added to the program come after those that weight_of covers, and none
        // is a weight.
        if (program->tensors[t].role != ROLE_WEIGHT) continue;
        const int32_t w = m->layers[layer].weight_of[t];
        if (w < 0) continue;
        out->parameters += m->weights[w].rows * m->weights[w].columns;
    }
    out->collective_ns = layer_collectives(s, layer);
}

status sim_layers(arena *a, const cost_model *m, const sim_rank *first, sim_layer out[SIM_LAYERS],
                  int32_t *count)
{
    const plan *p = first->p;
    const op_model *model = p->model;
    pricer s = {.a = a, .m = m, .rank = first};
    TRY(arena_new(a, p->run->group_count + 1, &s.groups));
    sim_groups_of(m, first, s.groups);
    *count = 0;
    for (int32_t k = 0; k < model->program_count && *count < SIM_LAYERS; k++) {
        sim_layer *row = &out[*count];
        memset(row, 0, sizeof(*row));
        for (int32_t i = 0; i < model->layer_count; i++) {
            if (model->layers[i].program != k) continue;
            if (row->count++ == 0) layer_fill(&s, i, row);
        }
        if (row->count > 0) ++*count;
    }
    return ST_OK;
}
