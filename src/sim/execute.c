// The executor in virtual time: every rank's plan is posted by exec_advance to a virtual device, which asks
// here what a kernel's call costs, and messages come here in place of comm.
//
// A call has shapes and no program, so a program of its one node is made, and priced as sim_price() prices
// a plan's; calls with equal shapes are looked up. Ranks post in turn, as far as their queues take it.
#include "sim/sim.h"
#include "sim/virtual.h"

#include "base/hash.h"
#include "exec/exec.h"

#include <string.h>

enum { MEMO_SLOTS = 1 << 14, OPERANDS = OP_MAX_IN + OP_MAX_OUT };

// What a price depends on.
typedef struct shape {
    op_code code;
    op_attrs attrs;
    int64_t seqs;
    struct {
        bool is_there, is_step;
        dtype type;
        int32_t ndim;
        int64_t dims[OP_MAX_DIMS];
    } operand[OPERANDS];
} shape;

typedef struct memo {
    shape *of; // NULL: empty
    int64_t ns;
} memo;

typedef struct runner runner;

typedef struct player_rank {
    runner *owner;
    const sim_rank *given;
    virtual_clock clock;
    exec *e;
    const plan *plans[1];
    cost_group *groups;         // [row of run->groups]
    virtual_meeting **meetings; // the same; NULL: its other ranks are not played
    exec_input input;
    bool posted;
} player_rank;

struct runner {
    arena *a;
    const cost_model *m;
    player_rank *ranks;
    int32_t count;
    virtual_world *world;
    memo *memos; // [MEMO_SLOTS]
    int64_t memo_count;
};

// ---- prices ---------------------------------------------------------------------------------------

static void shape_of(const kern_call *call, shape *out)
{
    memset(out, 0, sizeof(*out));
    out->code = call->code;
    memcpy(&out->attrs, &call->attrs, sizeof(out->attrs));
    out->attrs.site = 0; // who it is, not how large
    out->attrs.tensor_index = 0;
    out->seqs = 1;
    for (int k = 0; k < OPERANDS; k++) {
        const kern_tensor *t = k < OP_MAX_IN ? &call->in[k] : &call->out[k - OP_MAX_IN];
        out->operand[k].is_there = t->data != NULL;
        if (t->data == NULL) continue;
        out->operand[k].is_step = t->data == (void *)call->step;
        out->operand[k].type = t->type;
        out->operand[k].ndim = t->ndim;
        for (int i = 0; i < t->ndim; i++) out->operand[k].dims[i] = t->dims[i];
    }
    // ATTENTION has queries first, its backward the gradient of what they gave: the same rows.
    if (call->in[0].data != NULL && call->seq > 0) {
        out->seqs = max_i64(1, call->in[0].dims[0] / call->seq);
    }
}

static int64_t shape_ns(const cost_model *m, const shape *s)
{
    op_tensor tensors[OPERANDS] = {0};
    op_program p = {.compute = DTYPE_F32, .tensors = tensors, .tensor_count = OPERANDS};
    op_node node = op_node_of(s->code);
    const extent_binding bound = {.value = {[EXTENT_ONE] = 1, [EXTENT_SEQS] = s->seqs}};
    node.attrs = s->attrs;
    for (int k = 0; k < OPERANDS; k++) {
        if (!s->operand[k].is_there) continue;
        tensors[k] = (op_tensor){.type = s->operand[k].type,
                                 .ndim = s->operand[k].ndim,
                                 .view_of = TENSOR_NONE,
                                 .role = s->operand[k].is_step ? ROLE_STEP : ROLE_ACTIVATION};
        for (int i = 0; i < s->operand[k].ndim; i++) {
            tensors[k].dims[i] = extent_of(s->operand[k].dims[i]);
        }
        if (k < OP_MAX_IN) node.in[k] = k;
        if (k >= OP_MAX_IN) node.out[k - OP_MAX_IN] = k;
        // The type that a model computes in is that of the narrowest operand.
        if (dtype_bytes(s->operand[k].type) < dtype_bytes(p.compute)) p.compute = s->operand[k].type;
    }
    return cost_node_ns(m, &p, &node, &bound);
}

static int64_t call_ns(void *context, const kern_call *call)
{
    runner *s = ((player_rank *)context)->owner;
    shape key;
    shape_of(call, &key);
    size_t at = (size_t)(hash64(&key, sizeof(key), 0) % MEMO_SLOTS);
    for (; s->memos[at].of != NULL; at = (at + 1) % MEMO_SLOTS) {
        if (memcmp(s->memos[at].of, &key, sizeof(key)) == 0) return s->memos[at].ns;
    }
    const int64_t ns = shape_ns(s->m, &key);
    shape *kept = NULL;
    if (s->memo_count >= MEMO_SLOTS / 2) return ns;
    if (arena_new(s->a, 1, &kept) != ST_OK) { // it is asked again then
        error_clear();
        return ns;
    }
    memcpy(kept, &key, sizeof(key));
    s->memos[at] = (memo){kept, ns};
    s->memo_count++;
    return ns;
}

static int64_t copy_ns(void *context, int64_t bytes)
{
    return cost_copy_ns(((player_rank *)context)->owner->m, (double)bytes);
}

static status carry(void *context, const plan *p, const plan_comm *c, kern_lane *lane, bool *posted)
{
    player_rank *r = context;
    const bool aside = p->run->groups[c->group].use != GROUP_INLINE;
    int64_t ns = 0, held = 0;
    sim_message_price(r->owner->m, &r->groups[c->group], p, c, aside, &ns, &held);
    virtual_message(lane, r->meetings[c->group], ns, posted);
    if (*posted) r->clock.held_ns += held;
    return ST_OK;
}

// ---- ranks ----------------------------------------------------------------------------------------

// The meeting that the ranks of a group share; the first of them makes it.
static status meeting_find(runner *s, player_rank *r, int64_t group, int32_t *members)
{
    const plan_group *g = &r->given->p->run->groups[group];
    const int64_t size = plan_group_size(&r->given->mesh, g);
    int32_t played = 0;
    plan_group_members(&r->given->mesh, g, members);
    for (int32_t i = 0; i < s->count; i++) {
        const player_rank *other = &s->ranks[i];
        const int64_t number = plan_mesh_rank(&other->given->mesh);
        bool is_member = false;
        for (int64_t k = 0; k < size && !is_member; k++) is_member = members[k] == number;
        if (!is_member) continue;
        played++;
        const plan_table *run = other->given->p->run;
        for (int64_t k = 0; other < r && k < run->group_count; k++) {
            if (!plan_group_equal(&run->groups[k], g)) continue;
            r->meetings[group] = other->meetings[k];
            return ST_OK;
        }
    }
    return played > 1 ? virtual_meeting_create(s->world, played, &r->meetings[group]) : ST_OK;
}

static status groups_make(runner *s, player_rank *r)
{
    const plan_table *run = r->given->p->run;
    int32_t *members = NULL;
    TRY(arena_new(s->a, run->group_count + 1, &r->groups));
    TRY(arena_new(s->a, run->group_count + 1, &r->meetings));
    TRY(arena_new(s->a, plan_mesh_ranks(&r->given->mesh), &members));
    for (int64_t g = 0; g < run->group_count; g++) {
        TRY(cost_group_of(s->m->c, s->a, &r->given->mesh, &run->groups[g], &r->groups[g]));
        TRY(meeting_find(s, r, g, members));
    }
    return ST_OK;
}

// Zeros for every batch tensor, as large as it is.
static status input_make(runner *s, player_rank *r)
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

static status rank_create(runner *s, player_rank *r)
{
    r->clock = (virtual_clock){
        .world = s->world, .call_ns = call_ns, .copy_ns = copy_ns, .context = r};
    r->plans[0] = r->given->p;
    TRY(groups_make(s, r));
    TRY(input_make(s, r));
    const exec_config config = {.api = &virtual_device,
                                .device = {.h = host_real(), .threads = 1, .clock = &r->clock},
                                .run = r->given->p->run,
                                .plans = r->plans,
                                .plan_count = 1,
                                .carry = carry,
                                .carry_context = r};
    return exec_create(&config, &r->e);
}

// ---- steps ----------------------------------------------------------------------------------------

static status advance(runner *s, bool *all)
{
    *all = true;
    for (int32_t i = 0; i < s->count; i++) {
        player_rank *r = &s->ranks[i];
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
        player_rank *r = &s->ranks[i];
        r->clock.host_ns = host_ns;
        r->clock.held_ns = 0;
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
        const player_rank *r = &s->ranks[i];
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
    TRY(arena_new(a, MEMO_SLOTS, &s.memos));
    TRY(virtual_world_create(a, &s.world));
    for (int32_t i = 0; i < count; i++) s.ranks[i] = (player_rank){.owner = &s, .given = &ranks[i]};
    const status st = steps_run(&s, host_ns, steps, out);
    for (int32_t i = 0; i < count; i++) exec_destroy(s.ranks[i].e);
    return st;
}
