// Sequences in slots: a prefill plan for each slot, one decode plan for all, one KV cache.
//
//   prompt of 7, chunk 4     . 0 1 2 | 3 4 5 6        prefill of a slot; dots are padding
//   then                                      7 8 9   decode, one token each, all slots at once
//
// The first chunk is padded in front, so the last row of every chunk is the sequence's last token,
// and every chunk has the plan's one shape. Padding rows are computed and discarded. A slot that
// takes no part in a decode has length 0: it appends no key and attends to none.
//
// Prefill is planned once, with a micro-batch for each slot; the plan of a slot is the actions of
// its micro-batch alone. So a prompt is computed in the same shape whatever the number of slots.
#include "infer/generate.h"

#include <math.h>
#include <string.h>

enum { CHUNK_MAX = 256, SLOTS_MAX = 1024 };

// ---- plans --------------------------------------------------------------------------------------

static status options_take(infer *g, const infer_options *o)
{
    TRY(infer_core_context(&g->c, o->context));
    g->slot_count = max_i64(1, o->slots);
    g->chunk = min_i64(o->chunk != 0 ? o->chunk : CHUNK_MAX, o->context);
    if (g->slot_count > SLOTS_MAX || g->chunk <= 0) {
        return fail(ST_CONFIG_RANGE,
                    "%lld sequences at once in chunks of %lld tokens; at most %d, at least 1",
                    (long long)g->slot_count, (long long)g->chunk, (int)SLOTS_MAX);
    }
    if (o->cache == 0) return ST_OK;
    const int64_t each = exec_pages_of(o->context);
    g->c.pages = min_i64(o->cache / EXEC_PAGE, g->slot_count * each);
    if (g->c.pages >= each) return ST_OK;
    return fail(ST_CONFIG_RANGE,
                "a cache of %lld tokens cannot hold one text of %lld: give at least %lld",
                (long long)o->cache, (long long)o->context, (long long)(each * EXEC_PAGE));
}

static status plans_make(infer *g)
{
    const int64_t n = g->slot_count;
    plan *prefill = NULL;
    const infer_plan_wanted decode = {PURPOSE_DECODE, n, n, 1, false, false};
    const bool paged = g->c.pages > 0;
    const infer_plan_wanted taking = {PURPOSE_PREFILL, paged ? 1 : n, 1, g->chunk, false, false};
    g->plan_count = paged ? 2 : n + 1;
    TRY(arena_new(g->c.a, g->plan_count, &g->plans));
    TRY(infer_core_plan(&g->c, &decode, &g->plans[0]));
    TRY(infer_core_plan(&g->c, &taking, &prefill));
    if (paged) {
        g->plans[1] = prefill;
        return ST_OK;
    }
    for (int64_t b = 0; b < n; b++) TRY(plan_microbatch(g->c.a, prefill, b, &g->plans[1 + b]));
    return ST_OK;
}

static kern_tensor matrix_row(float *values, int64_t columns)
{
    return (kern_tensor){.data = values,
                         .type = DTYPE_F32,
                         .ndim = 2,
                         .dims = {1, columns},
                         .strides = {columns, 1}};
}

// The call that draws a slot's next token from logits in the memory of the host.
static kern_call draw_call(infer *g, int64_t slot, float *logits, int64_t *draw, int32_t *id)
{
    const int64_t vocab = g->c.spec.vocab;
    kern_call call = {
        .code = OP_SAMPLE, .workspace = g->draw_space, .workspace_bytes = g->draw_bytes};
    call.in[0] = matrix_row(logits, vocab);
    call.in[1] = matrix_row(g->params + slot * INFER_PARAMS, INFER_PARAMS);
    call.in[2] = (kern_tensor){.data = draw, .type = DTYPE_I64, .ndim = 1, .dims = {1}};
    call.out[0] = (kern_tensor){.data = id, .type = DTYPE_I32, .ndim = 1, .dims = {1}};
    call.in[2].strides[0] = call.out[0].strides[0] = 1;
    return call;
}

// Prompts are kept where a draw can be made without a plan.
static status keeping_begin(infer *g)
{
    arena *a = g->c.a;
    const int64_t n = g->slot_count;
    int64_t draw = 0;
    int32_t id = 0;
    if (device_find(g->c.device)->hides_memory) return ST_OK;
    TRY(arena_new(a, n * g->c.spec.vocab, &g->first));
    const kern_call call = draw_call(g, 0, g->first, &draw, &id);
    g->draw_bytes = kern_workspace_bytes(g->c.kernels, &call);
    void *space = NULL;
    TRY(arena_alloc(a, g->draw_bytes + ALIGN_TENSOR, &space));
    const uintptr_t at = (uintptr_t)space;
    g->draw_space = (char *)space + (align_up((int64_t)at, ALIGN_TENSOR) - (int64_t)at);
    return ST_OK;
}

static status buffers_make(infer *g, bool logits)
{
    arena *a = g->c.a;
    const int64_t n = g->slot_count;
    if (g->c.pages > 0) {
        TRY(exec_pages_create(a, g->c.pages, n, g->c.context, &g->pages));
        TRY(exec_caches_find(a, &g->c.run, g->c.pages, EXEC_PAGE, &g->caches));
    } else {
        TRY(exec_caches_find(a, &g->c.run, n, g->c.context, &g->caches));
    }
    TRY(arena_new(a, n, &g->gone));
    TRY(arena_new(a, n, &g->oldest));
    TRY(arena_new(a, n, &g->slots));
    for (int64_t b = 0; b < n; b++) TRY(arena_new(a, g->c.context, &g->slots[b].text));
    TRY(arena_new(a, n * g->chunk, &g->ids));
    TRY(arena_new(a, n * g->chunk, &g->positions));
    TRY(arena_new(a, n, &g->lengths));
    TRY(arena_new(a, n, &g->rows));
    TRY(arena_new(a, n, &g->draws));
    TRY(arena_new(a, n * INFER_PARAMS, &g->params));
    TRY(arena_new(a, n, &g->pending));
    TRY(arena_new(a, n, &g->heard));
    if (!logits) return ST_OK;
    TRY(arena_new(a, n * g->c.spec.vocab, &g->logits));
    return keeping_begin(g);
}

// Memory for the tokens and logits of a run, to which the device copies directly.
static status outputs_make(infer *g)
{
    const int64_t n = g->slot_count, id = (int64_t)sizeof(int32_t), logit = (int64_t)sizeof(float);
    TRY(exec_host_memory(g->c.e, n * id, (void **)&g->drawn));
    if (g->logits == NULL) return ST_OK;
    return exec_host_memory(g->c.e, n * g->c.spec.vocab * logit, (void **)&g->logits_run);
}

static status open_parts(infer *g, const host *h, arena *a, const char *folder,
                         const infer_options *options)
{
    TRY(infer_core_begin(&g->c, h, a, folder, options));
    TRY(options_take(g, options));
    TRY(plans_make(g));
    TRY(buffers_make(g, options->logits));
    g->table_seq = g->c.context;
    TRY(infer_core_load(&g->c, folder, (const plan *const *)g->plans, g->plan_count));
    return outputs_make(g);
}

status infer_open(const host *h, arena *a, const char *folder, const infer_options *options,
                  infer **out)
{
    infer *g = NULL;
    TRY(arena_new(a, 1, &g));
    const status st = open_parts(g, h, a, folder, options);
    if (st != ST_OK) {
        infer_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

void infer_close(infer *g)
{
    if (g != NULL) infer_core_end(&g->c);
}

const decoder_spec *infer_spec(const infer *g)
{
    return &g->c.spec;
}

int64_t infer_slots(const infer *g)
{
    return g->slot_count;
}

const plan *infer_decode_plan(const infer *g)
{
    return g->plans[0];
}

int64_t infer_peak_bytes(const infer *g)
{
    return exec_touched_bytes(g->c.e);
}

int64_t infer_length(const infer *g, int64_t slot)
{
    return g->slots[slot].length;
}

// ---- runs ---------------------------------------------------------------------------------------

// A sequence of `seq` tokens may need another rotary table than the one on the device.
static status table_for(infer *g, int64_t seq)
{
    if (!model_rope_changes(&g->c.spec, g->table_seq, seq)) return ST_OK;
    const int64_t row = plan_table_find(&g->c.run, "constant.rope");
    ASSERT(row >= 0);
    arena *work = NULL;
    float *table = NULL;
    TRY(arena_create("rotary table", 0, &work));
    const int64_t rows = g->c.context, width = model_rope_dim(&g->c.spec) * (int64_t)sizeof(float);
    status st = model_rope_table(work, &g->c.spec, rows, seq, &table);
    if (st == ST_OK) st = exec_write(g->c.e, row, 0, table, rows * width);
    arena_destroy(work);
    if (st == ST_OK) g->table_seq = seq;
    return st;
}

// slot: the one of a prefill.
static status plan_run(infer *g, const plan *p, int64_t slot)
{
    const bool alone = g->c.pages > 0 && p != g->plans[0]; // the plan has no other slot
    const int64_t n = alone ? 1 : g->slot_count, b = alone ? slot : 0;
    const int64_t width = (int64_t)sizeof(int32_t), rows = n * p->seq * width, at = b * p->seq;
    exec_input input = {.batch = {{"ids", g->ids + at, rows},
                                  {"positions", g->positions + at, rows},
                                  {"lengths", g->lengths + b, n * width},
                                  {"rows", g->rows + b, n * width},
                                  {"params", g->params + b * INFER_PARAMS,
                                   n * INFER_PARAMS * (int64_t)sizeof(float)},
                                  {"draws", g->draws + b, n * (int64_t)sizeof(int64_t)}},
                        .batch_count = 6};
    if (g->c.pages > 0) {
        const int64_t each = g->pages.each;
        input.batch[input.batch_count++] =
            (exec_batch){"pages", g->pages.tables + b * each, n * each * width};
    }
    return infer_core_run(&g->c, p, &input);
}

// Stores the token that a run drew for `slot`, from row `row` of the run.
static status slot_drew(infer *g, int64_t slot, int32_t id, int32_t *next)
{
    if (id < 0 || id >= g->c.spec.vocab) {
        return fail(ST_NUMERICS, "the token drawn is %d of a vocabulary of %lld", id,
                    (long long)g->c.spec.vocab);
    }
    g->slots[slot].draws++;
    *next = id;
    return ST_OK;
}

// Reads the logits of a run's rows, then copies each row to its slot.
static status logits_read(infer *g, const plan *p, int64_t rows)
{
    if (g->logits == NULL) return ST_OK;
    return infer_core_output(&g->c, p, 1, g->logits_run,
                             rows * g->c.spec.vocab * (int64_t)sizeof(float));
}

static void logits_keep(infer *g, int64_t row, int64_t slot)
{
    const int64_t vocab = g->c.spec.vocab;
    if (g->logits == NULL) return;
    memcpy(g->logits + slot * vocab, g->logits_run + row * vocab, (size_t)vocab * sizeof(float));
}

static void sampling_set(infer *g, int64_t slot, const infer_sampling *s)
{
    // Passes the seed's bits unchanged; a conversion to float would lose most of them.
    const uint32_t low = (uint32_t)s->seed, high = (uint32_t)(s->seed >> 32);
    float *params = g->params + slot * INFER_PARAMS;
    params[0] = (float)s->temperature;
    params[1] = (float)s->top_k;
    params[2] = (float)s->top_p;
    params[3] = (float)s->min_p;
    memcpy(&params[4], &low, sizeof(low));
    memcpy(&params[5], &high, sizeof(high));
}

// ---- prompts ------------------------------------------------------------------------------------

// Processes the slot's text[start .. count - 1], a chunk at a time; if start > 0, in whole chunks.
static status prefill(infer *g, int64_t b, int64_t start, int64_t count, int32_t *next)
{
    const int64_t chunk = g->chunk;
    const plan *p = g->plans[g->c.pages > 0 ? 1 : 1 + b];
    infer_held *s = &g->slots[b];
    TRY(table_for(g, count));
    g->rows[b] = (int32_t)chunk - 1;
    g->draws[b] = s->draws;
    int64_t taken = start; // negative: padding in front
    if (start == 0 && count % chunk != 0) taken = count % chunk - chunk;
    for (; taken < count; taken += chunk) {
        for (int64_t i = 0; i < chunk; i++) {
            const int64_t at = taken + i;
            g->ids[b * chunk + i] = at < 0 ? 0 : s->text[at];
            g->positions[b * chunk + i] = at < 0 ? 0 : (int32_t)at;
        }
        g->lengths[b] = (int32_t)(taken + chunk);
        TRY(plan_run(g, p, b));
    }
    s->length = s->prefilled = (int32_t)count;
    s->table_seq = count;
    TRY(infer_core_output(&g->c, p, 0, g->drawn, (int64_t)sizeof(*g->drawn)));
    TRY(logits_read(g, p, 1));
    logits_keep(g, 0, b);
    return slot_drew(g, b, g->drawn[0], next);
}

// Returns a slot with the keys and the logits of this prompt, whatever followed it there; -1: none.
int64_t infer_prompt_find(const infer *g, const int32_t *ids, int64_t count)
{
    for (int64_t b = 0; b < g->slot_count && g->first != NULL; b++) {
        const infer_held *s = &g->slots[b];
        if (s->prompt == count && memcmp(s->text, ids, (size_t)count * sizeof(*ids)) == 0) return b;
    }
    return -1;
}

// Takes over the keys of another slot, and draws from its logits: the bits are those of a prefill.
static status prompt_copy(infer *g, int64_t b, int64_t from, int64_t count, int32_t *next)
{
    const int64_t vocab = g->c.spec.vocab;
    const size_t bytes = (size_t)vocab * sizeof(float);
    infer_held *s = &g->slots[b];
    if (g->c.pages > 0) {
        exec_pages_cut(&g->pages, b, from == b ? count : 0);
        if (from != b) exec_pages_share(&g->pages, from, b, count);
    } else if (from != b) {
        TRY(exec_caches_copy(g->c.e, &g->caches, from, b, count));
    }
    if (from != b) {
        memcpy(g->first + b * vocab, g->first + from * vocab, bytes);
    }
    memcpy(g->logits + b * vocab, g->first + b * vocab, bytes);
    int32_t id = -1;
    const kern_call call = draw_call(g, b, g->first + b * vocab, &s->draws, &id);
    TRY(kern_run(g->c.kernels, &call));
    s->length = s->prefilled = (int32_t)count;
    s->table_seq = count;
    g->kept_tokens += count;
    return slot_drew(g, b, id, next);
}

// The slot has the text.
static status slot_begin(infer *g, const infer_order *order, int32_t *next)
{
    const int64_t b = order->index, vocab = g->c.spec.vocab;
    infer_held *s = &g->slots[b];
    sampling_set(g, b, &order->sampling);
    s->draws = 0;
    s->prompt = 0;
    s->age = ++g->begun;
    s->is_live = true;
    s->is_back = false;
    s->target = 0;
    if (order->kept >= 0) {
        TRY(prompt_copy(g, b, order->kept, order->count, next));
    } else {
        if (g->c.pages > 0) {
            TRY(infer_pages_begin(g, b, order->from, order->start, order->count));
        }
        TRY(prefill(g, b, order->start, order->count, next));
        g->kept_tokens += order->start;
    }
    // With pages a prompt is kept where its logits are not: the last chunk is computed again.
    if (g->first == NULL && g->c.pages == 0) return ST_OK;
    if (order->kept < 0 && g->first != NULL)
        memcpy(g->first + b * vocab, g->logits + b * vocab, (size_t)vocab * sizeof(float));
    s->prompt = (int32_t)order->count;
    return ST_OK;
}

status infer_slot_begin(infer *g, int64_t slot, const infer_sampling *sampling, const int32_t *ids,
                        int64_t count, int32_t *next)
{
    ASSERT(slot >= 0 && slot < g->slot_count);
    if (count < 1) return fail(ST_DATA, "the prompt has no token");
    if (count > g->c.context) {
        return fail(ST_CONFIG_RANGE,
                    "the prompt has %lld tokens, but the context has space for %lld",
                    (long long)count, (long long)g->c.context);
    }
    for (int64_t i = 0; i < count; i++) TRY(infer_core_token_check(&g->c, ids[i]));
    infer_order order = {.kind = INFER_ORDER_BEGIN,
                         .index = slot,
                         .count = count,
                         .kept = infer_prompt_find(g, ids, count),
                         .sampling = *sampling};
    order.start = infer_prefix_find(g, ids, count, &order.from);
    memcpy(g->slots[slot].text, ids, (size_t)count * sizeof(*ids));
    TRY(infer_ranks_share(&g->c, &order, (int64_t)sizeof(order)));
    TRY(infer_ranks_share(&g->c, g->slots[slot].text, count * (int64_t)sizeof(*ids)));
    return slot_begin(g, &order, next);
}

static status adapter_use(infer *g, int64_t index)
{
    for (int64_t b = 0; b < g->slot_count; b++) {
        g->slots[b].prompt = 0; // keys of another model
        if (g->c.pages > 0) exec_pages_cut(&g->pages, b, 0);
    }
    return infer_adapters_use(&g->c, index);
}

status infer_adapter_use(infer *g, int64_t index)
{
    infer_order order = {.kind = INFER_ORDER_ADAPTER, .index = index};
    TRY(infer_ranks_share(&g->c, &order, (int64_t)sizeof(order)));
    return adapter_use(g, index);
}

int64_t infer_kept_tokens(const infer *g)
{
    return g->kept_tokens;
}

// ---- decode -------------------------------------------------------------------------------------

static status turn_check(const infer *g, const infer_turn *turn)
{
    ASSERT(turn->slot >= 0 && turn->slot < g->slot_count);
    const infer_held *s = &g->slots[turn->slot];
    ASSERT(s->length > 0);
    TRY(infer_core_token_check(&g->c, turn->id));
    if (s->length < g->c.context) return ST_OK;
    return fail(ST_CONFIG_RANGE, "the text has %d tokens, which fill the context", s->length);
}

// One step for the first of the turns and all others that need the same table. Moves the remaining
// turns to the front and counts them in *left.
static status decode(infer *g, infer_turn **turns, int64_t *left)
{
    const int64_t count = *left;
    TRY(table_for(g, g->slots[turns[0]->slot].length + 1));
    for (int64_t b = 0; b < g->slot_count; b++) {
        g->ids[b] = g->positions[b] = g->lengths[b] = 0;
        g->rows[b] = (int32_t)b;
        g->draws[b] = g->slots[b].draws;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = turns[i]->slot;
        const infer_held *s = &g->slots[b];
        if (!infer_table_fits(g, s, g->table_seq)) continue;
        g->ids[b] = s->text[s->length];
        g->positions[b] = s->length;
        g->lengths[b] = s->length + 1;
    }
    const plan *p = g->plans[0];
    TRY(plan_run(g, p, 0));
    TRY(infer_core_output(&g->c, p, 0, g->drawn, g->slot_count * (int64_t)sizeof(int32_t)));
    TRY(logits_read(g, p, g->slot_count));
    *left = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = turns[i]->slot;
        if (g->lengths[b] == 0) {
            turns[(*left)++] = turns[i];
            continue;
        }
        infer_held *s = &g->slots[b];
        turns[i]->next = -1;
        if (s->length++ < s->target) continue; // it drew this token before it was put back
        logits_keep(g, b, b);
        TRY(slot_drew(g, b, g->drawn[b], &turns[i]->next));
    }
    return ST_OK;
}

// Processes again what the sequence had processed at once before it was put back.
static status come_back(infer *g, int64_t b)
{
    infer_held *s = &g->slots[b];
    const int64_t draws = s->draws;
    int32_t id = 0;
    s->is_back = false;
    TRY(prefill(g, b, 0, s->prefilled, &id));
    s->draws = draws;
    return ST_OK;
}

static status slots_next(infer *g, infer_turn *turns, int64_t count)
{
    int64_t left = 0;
    if (g->c.pages > 0) TRY(infer_pages_turns(g, turns, count));
    for (int64_t i = 0; i < count; i++) {
        infer_held *s = &g->slots[turns[i].slot];
        s->text[max_i64(s->length, s->target)] = turns[i].id;
        if (g->c.pages > 0 && turns[i].next < 0) continue;
        if (s->is_back) TRY(come_back(g, turns[i].slot));
        if (infer_table_fits(g, s, s->table_seq)) {
            g->pending[left++] = &turns[i];
        } else {
            // Another table rotated the keys in its cache, so the sequence is processed again from
            // its beginning. These are no longer the keys of its prompt.
            s->prompt = 0;
            TRY(prefill(g, turns[i].slot, 0, s->length + 1, &turns[i].next));
        }
    }
    while (left > 0) TRY(decode(g, g->pending, &left));
    return ST_OK;
}

status infer_slots_next(infer *g, infer_turn *turns, int64_t count)
{
    ASSERT(count <= g->slot_count);
    infer_order order = {.kind = INFER_ORDER_NEXT, .count = count};
    for (int64_t i = 0; i < count; i++) TRY(turn_check(g, &turns[i]));
    TRY(infer_ranks_share(&g->c, &order, (int64_t)sizeof(order)));
    TRY(infer_ranks_share(&g->c, turns, count * (int64_t)sizeof(*turns)));
    return slots_next(g, turns, count);
}

// ---- several ranks ------------------------------------------------------------------------------

static status order_follow(infer *g, const infer_order *order)
{
    int32_t next = 0;
    infer_held *s = &g->slots[order->kind == INFER_ORDER_BEGIN ? order->index : 0];
    switch ((infer_order_kind)order->kind) {
    case INFER_ORDER_BEGIN:
        TRY(infer_ranks_share(&g->c, s->text, order->count * (int64_t)sizeof(*s->text)));
        return slot_begin(g, order, &next);
    case INFER_ORDER_NEXT:
        TRY(infer_ranks_share(&g->c, g->heard, order->count * (int64_t)sizeof(*g->heard)));
        return slots_next(g, g->heard, order->count);
    case INFER_ORDER_ADAPTER:
        return adapter_use(g, order->index);
    case INFER_ORDER_LEAVE:
        infer_pages_end(g, order->index);
        return ST_OK;
    case INFER_ORDER_WAIT:
    case INFER_ORDER_END:
        return ST_OK;
    }
    return ST_OK;
}

status infer_follow(infer *g)
{
    infer_order order = {.kind = INFER_ORDER_END};
    do {
        TRY(infer_ranks_share(&g->c, &order, (int64_t)sizeof(order)));
        TRY(order_follow(g, &order));
    } while (order.kind != INFER_ORDER_END);
    return ST_OK;
}

status infer_dismiss(infer *g)
{
    infer_order order = {.kind = INFER_ORDER_END};
    return infer_ranks_share(&g->c, &order, (int64_t)sizeof(order));
}

status infer_wait(infer *g)
{
    infer_order order = {.kind = INFER_ORDER_WAIT};
    return infer_ranks_share(&g->c, &order, (int64_t)sizeof(order));
}

// ---- one sequence -------------------------------------------------------------------------------

status infer_begin(infer *g, const infer_sampling *sampling, const int32_t *ids, int64_t count,
                   int32_t *next)
{
    return infer_slot_begin(g, 0, sampling, ids, count, next);
}

status infer_next(infer *g, int32_t id, int32_t *next)
{
    infer_turn turn = {.slot = 0, .id = id};
    TRY(infer_slots_next(g, &turn, 1));
    *next = turn.next;
    return ST_OK;
}

status infer_logits(const infer *g, int64_t slot, float *out)
{
    ASSERT(g->logits != NULL && g->slots[slot].length > 0);
    const int64_t vocab = g->c.spec.vocab;
    memcpy(out, g->logits + slot * vocab, (size_t)vocab * sizeof(float));
    return ST_OK;
}

static double log_of_sum(const float *logits, int64_t count)
{
    float most = logits[0];
    double sum = 0.0;
    for (int64_t i = 1; i < count; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - (double)most);
    return (double)most + log(sum);
}

void infer_slot_likely(const infer *g, int64_t slot, int32_t id, int64_t count, infer_likely *out)
{
    ASSERT(g->logits != NULL && g->slots[slot].draws > 0 && count <= g->c.spec.vocab);
    const int64_t vocab = g->c.spec.vocab;
    const float *logits = g->logits + slot * vocab;
    const double all = log_of_sum(logits, vocab);
    out[0] = (infer_likely){id, (double)logits[id] - all};
    infer_likely *best = out + 1;
    int64_t kept = 0; // sorted; a new one goes behind all that are at least as probable
    for (int32_t i = 0; count > 0 && i < vocab; i++) {
        const double log_p = (double)logits[i] - all;
        if (kept == count && log_p <= best[kept - 1].log_p) continue;
        int64_t at = kept < count ? kept++ : kept - 1;
        for (; at > 0 && best[at - 1].log_p < log_p; at--) best[at] = best[at - 1];
        best[at] = (infer_likely){i, log_p};
    }
}
