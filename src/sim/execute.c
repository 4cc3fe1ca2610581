// Runs the executor in virtual time. exec_advance() posts every rank's plan to a virtual device,
// which asks this file for the cost of each kernel call; the virtual transport asks it for the cost
// of each collective.
//
// A kernel call has shapes but no program. This file therefore builds a program of one node and
// prices it as sim_price() prices a plan's nodes; prices of equal shapes are looked up. Ranks post
// in turn until their queues are full.
#include "sim/habits.h"
#include "sim/virtual.h"

#include "base/hash.h"
#include "exec/exec.h"

#include <string.h>

enum { MEMO_SLOTS = 1 << 14, OPERANDS = OP_MAX_IN + OP_MAX_OUT };

// The inputs of a price. Only the first `words` entries count: for each operand its position, type
// and number of dims, and the dims.
typedef struct shape {
    op_code code;
    int32_t words;
    op_attrs attrs;
    op_piece piece;
    int64_t seqs;
    int64_t word[OPERANDS * (1 + OP_MAX_DIMS)];
} shape;
static int64_t shape_bytes(const shape *s)
{
    return (int64_t)offsetof(shape, word) + s->words * (int64_t)sizeof(s->word[0]);
}

typedef struct memo {
    shape *of; // NULL: empty
    int64_t ns;
} memo;

typedef struct runner runner;

typedef struct rank_state {
    runner *owner;
    const sim_rank *given;
    virtual_clock clock;
    exec *e;
    const plan *plans[1];
    cost_group *prices; // [row of run->groups]
    sim_sums sums;
    bool *alone; // [action] sim_habit_alone()
    int64_t at;  // behind the last action that is_alone() found
    virtual_network network;
    comm *link;
    comm_group **groups; // [row of run->groups]
    exec_input input;
    bool posted;
} rank_state;

struct runner {
    arena *a;
    const cost_model *m;
    rank_state *ranks;
    int32_t *numbers; // [count] numbers of the simulated ranks in the job
    int32_t count;
    virtual_world *world;
    memo *memos; // [MEMO_SLOTS]
    int64_t memo_count;
};

// ---- prices ------------------------------------------------------------------------------------

static void shape_of(const kern_call *call, shape *out)
{
    memset(out, 0, offsetof(shape, word));
    out->code = call->code;
    memcpy(&out->attrs, &call->attrs, sizeof(out->attrs));
    memcpy(&out->piece, &call->piece, sizeof(out->piece));
    out->attrs.site = 0; // the site identifies the call and does not change its cost
    out->attrs.tensor_index = 0;
    // The first operand of ATTENTION holds the queries; that of its backward holds the gradient of
    // the output, which has the same rows.
    const bool has_rows = call->in[0].data != NULL && call->seq > 0;
    out->seqs = has_rows ? max_i64(1, call->in[0].dims[0] / call->seq) : 1;
    for (int k = 0; k < OPERANDS; k++) {
        const kern_tensor *t = k < OP_MAX_IN ? &call->in[k] : &call->out[k - OP_MAX_IN];
        const bool is_step = t->data == (void *)call->step;
        if (t->data == NULL) continue;
        const int64_t type = (int64_t)t->type;
        out->word[out->words++] = k | type << 8 | t->ndim << 16 | (is_step ? 1 << 24 : 0);
        for (int i = 0; i < t->ndim; i++) out->word[out->words++] = t->dims[i];
    }
}

static int64_t shape_ns(const cost_model *m, const shape *s)
{
    op_tensor tensors[OPERANDS] = {0};
    op_program p = {.compute = DTYPE_F32, .tensors = tensors, .tensor_count = OPERANDS};
    op_node node = op_node_of(s->code);
    const extent_binding bound = {.value = {[EXTENT_ONE] = 1, [EXTENT_SEQS] = s->seqs}};
    node.attrs = s->attrs;
    node.piece = s->piece;
    for (int32_t w = 0; w < s->words;) {
        const int64_t word = s->word[w++];
        const int k = (int)(word & 255);
        op_tensor *t = &tensors[k];
        *t = (op_tensor){.type = (dtype)(word >> 8 & 255),
                         .ndim = (int)(word >> 16 & 255),
                         .view_of = TENSOR_NONE,
                         .role = word >> 24 != 0 ? ROLE_STEP : ROLE_ACTIVATION};
        for (int i = 0; i < t->ndim; i++) t->dims[i] = extent_of(s->word[w++]);
        if (k < OP_MAX_IN) node.in[k] = k;
        if (k >= OP_MAX_IN) node.out[k - OP_MAX_IN] = k;
        // A model computes in the type of its narrowest operand.
        if (dtype_bytes(t->type) < dtype_bytes(p.compute)) p.compute = t->type;
    }
    return cost_node_ns(m, &p, &node, &bound);
}

static int64_t call_ns(void *context, const kern_call *call)
{
    runner *s = ((rank_state *)context)->owner;
    shape key;
    shape_of(call, &key);
    const int64_t bytes = shape_bytes(&key);
    size_t at = (size_t)(hash64(&key, bytes, 0) % MEMO_SLOTS);
    for (; s->memos[at].of != NULL; at = (at + 1) % MEMO_SLOTS) {
        if (memcmp(s->memos[at].of, &key, (size_t)bytes) == 0) return s->memos[at].ns;
    }
    const int64_t ns = shape_ns(s->m, &key);
    shape *kept = NULL;
    if (s->memo_count >= MEMO_SLOTS / 2) return ns;
    if (arena_new(s->a, 1, &kept) != ST_OK) { // the device asks again then
        error_clear();
        return ns;
    }
    memcpy(kept, &key, (size_t)bytes);
    s->memos[at] = (memo){kept, ns};
    s->memo_count++;
    return ns;
}

static int64_t copy_ns(void *context, int64_t bytes)
{
    return cost_copy_ns(((rank_state *)context)->owner->m, (double)bytes);
}

// True if the next action with this record sends rows of experts and no other micro-batch overlaps
// with it. The actions of the compute stream are posted in their order, so the search continues
// behind the last one.
static bool is_alone(rank_state *r, int32_t record)
{
    const plan *p = r->given->p;
    if (traffic_of(r->prices[p->comms[record].group].axes) != TRAFFIC_EP) return false;
    for (int64_t n = 0; n < p->action_count; n++) {
        const int64_t i = (r->at + n) % p->action_count;
        const plan_action *x = &p->actions[i];
        if (x->kind != ACTION_COMMUNICATE || x->comm != record) continue;
        if (!sim_is_of_experts(&r->prices[p->comms[record].group], x)) return false;
        r->at = i + 1;
        return r->alone[i];
    }
    return false;
}

static virtual_price collective_price(void *context, const comm_args *args)
{
    rank_state *r = context;
    const plan *p = r->given->p;
    ASSERT(args->record >= 0 && args->record < p->comm_count);
    const plan_comm *c = &p->comms[args->record];
    const bool overlapped = p->run->groups[c->group].use != GROUP_INLINE;
    int64_t ns = 0, held = 0;
    sim_collective_price(r->owner->m, &r->prices[c->group], p, c, overlapped, &ns, &held);
    if (r->alone != NULL && is_alone(r, args->record)) {
        ns = cost_comm_ns(r->owner->m, &r->prices[c->group], p, c);
    }
    const bool sends = traffic_of(r->prices[c->group].axes) == TRAFFIC_PP;
    return (virtual_price){.ns = sim_sum_ns(&r->sums, args->record, ns),
                           .tail = r->sums.tail[args->record],
                           .held = sends ? 0 : held,
                           .sent = sends ? held : 0};
}

// ---- ranks -------------------------------------------------------------------------------------

static status groups_make(runner *s, rank_state *r)
{
    const plan_table *run = r->given->p->run;
    const plan_mesh *mesh = &r->given->mesh;
    TRY(arena_new(s->a, run->group_count + 1, &r->prices));
    sim_groups_of(s->m, r->given, r->prices);
    TRY(sim_sums_make(s->a, s->m, r->prices, r->given->p, &r->sums));
    TRY(sim_habit_alone(s->a, s->m, r->given->p, &r->alone));
    r->network = (virtual_network){.world = s->world,
                                   .clock = &r->clock,
                                   .simulated = s->numbers,
                                   .simulated_count = s->count,
                                   .price = collective_price,
                                   .context = r};
    const comm_config config = {.h = host_real(),
                                .rank = (int)plan_mesh_rank(mesh),
                                .ranks = (int)plan_mesh_ranks(mesh),
                                .row = &virtual_transport,
                                .row_context = &r->network};
    TRY(comm_open(&config, &r->link));
    return exec_groups_make(s->a, r->link, mesh, run, &r->groups);
}

// Zero-filled buffers of the size of every batch tensor.
static status input_make(runner *s, rank_state *r)
{
    const plan_table *run = r->given->p->run;
    for (int64_t i = 0; i < run->count && r->input.batch_count < EXEC_MAX_BATCH; i++) {
        const plan_tensor *t = &run->tensors[i];
        char *zeros = NULL;
        if (strncmp(t->name, "batch.", 6) != 0) continue;
        TRY(arena_new(s->a, t->bytes, &zeros));
        r->input.batch[r->input.batch_count++] =
            (exec_batch){.name = t->name + 6, .data = zeros, .bytes = t->bytes};
    }
    return ST_OK;
}

static status rank_create(runner *s, rank_state *r)
{
    r->clock =
        (virtual_clock){.world = s->world, .call_ns = call_ns, .copy_ns = copy_ns, .context = r};
    r->plans[0] = r->given->p;
    TRY(groups_make(s, r));
    TRY(input_make(s, r));
    const exec_config config = {.api = &virtual_device,
                                .device = {.h = host_real(), .clock = &r->clock},
                                .run = r->given->p->run,
                                .plans = r->plans,
                                .plan_count = 1,
                                .groups = r->groups};
    return exec_create(&config, &r->e);
}

static void rank_destroy(rank_state *r)
{
    exec_destroy(r->e);
    comm_close(r->link); // closes its groups too
}

// ---- steps -------------------------------------------------------------------------------------

static status advance(runner *s, bool *all)
{
    *all = true;
    for (int32_t i = 0; i < s->count; i++) {
        rank_state *r = &s->ranks[i];
        exec_state state = EXEC_POSTED;
        if (r->posted) continue;
        TRY(exec_advance(r->e, &state));
        r->posted = state == EXEC_POSTED;
        *all = *all && r->posted;
    }
    return ST_OK;
}

static status step_run(runner *s, int64_t number, int64_t host_ns, int64_t *end)
{
    bool all = false;
    for (int32_t i = 0; i < s->count; i++) {
        rank_state *r = &s->ranks[i];
        r->clock.host_ns = host_ns;
        r->clock.held_ns = r->clock.sent_ns = 0;
        r->input.host.step = number;
        r->posted = false;
        TRY(exec_begin(r->e, r->given->p, &r->input));
    }
    while (!all) {
        const int64_t before = virtual_world_done(s->world);
        TRY(advance(s, &all));
        if (all || virtual_world_done(s->world) > before) continue;
        return fail(ST_INTERNAL, "the plan waits for itself in step %lld", (long long)number);
    }
    for (int32_t i = 0; i < s->count; i++) {
        TRY(exec_finish(s->ranks[i].e));
        *end = max_i64(*end, s->ranks[i].clock.compute_end);
    }
    return ST_OK;
}

static status steps_run(runner *s, int64_t host_ns, int32_t steps, sim_executed *out)
{
    int64_t before = 0, end = 0;
    for (int32_t i = 0; i < s->count; i++) TRY(rank_create(s, &s->ranks[i]));
    for (int32_t n = 0; n < steps; n++) {
        before = end;
        TRY(step_run(s, n + 1, host_ns, &end));
        if (n == 0) out->first_ns = end;
    }
    out->step_ns = end - before;
    for (int32_t i = 0; i < s->count; i++) {
        const rank_state *r = &s->ranks[i];
        out->calls += r->clock.calls;
        out->arena_bytes = max_i64(out->arena_bytes, exec_arena_bytes(r->e));
        out->touched_bytes = max_i64(out->touched_bytes, exec_touched_bytes(r->e));
    }
    return ST_OK;
}

status sim_execute(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                   int64_t host_ns, int32_t steps, sim_executed *out)
{
    runner s = {.a = a, .m = m, .count = count};
    ASSERT(count > 0 && steps > 0 && host_ns >= 0);
    memset(out, 0, sizeof(*out));
    TRY(arena_new(a, count, &s.ranks));
    TRY(arena_new(a, count, &s.numbers));
    TRY(arena_new(a, MEMO_SLOTS, &s.memos));
    TRY(virtual_world_create(a, &s.world));
    for (int32_t i = 0; i < count; i++) {
        s.ranks[i] = (rank_state){.owner = &s, .given = &ranks[i]};
        s.numbers[i] = (int32_t)plan_mesh_rank(&ranks[i].mesh);
    }
    const status st = steps_run(&s, host_ns, steps, out);
    for (int32_t i = 0; i < count; i++) rank_destroy(&s.ranks[i]);
    return st;
}
