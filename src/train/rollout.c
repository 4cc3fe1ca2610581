// Continuous batching over the slots of a training job's plans.
//
// Where the plans have collectives of their own (stages of a pipeline, weights that ZeRO-3 gathers,
// experts of other ranks), all ranks run the same plans in the same order: before each they agree
// on what is due, and a rank that has nothing to do computes rows that no completion reads.
#include "train/rollout.h"

#include "exec/pages.h"
#include "train/job.h"

#include <string.h>

enum { PARAMS = 8 };

typedef struct seat {
    int64_t request; // -1: free
    int32_t last;    // the token to append next
    int32_t length;  // tokens in the cache
    int64_t due;     // pages that it may yet take
} seat;

struct train_rollouts {
    const assemble_plans *plans;
    exec *e;
    const rollout_ends *ends;
    int64_t slots, chunk;
    seat *seats;
    exec_caches caches;
    exec_pages pages; // count 0: none
    bool *gone;       // of slot 0 alone
    int64_t most_used;
    const int32_t *kept; // the prompt in slot 0; NULL: none
    // Inputs and outputs of a run.
    int32_t *ids, *positions, *lengths, *rows, *drawn;
    float *params, *losses;
    int64_t *draws;
    step_device *results;
    int64_t runs;
    comm_group *together; // ranks that draw in step; NULL: this one draws alone
    int32_t *shared;      // [ranks along dp and cp][DRAWN][slots], of the last stage
};

enum { DRAWN_ID, DRAWN_LOSS, DRAWN };

// Ranks with completions of their own.
static int64_t drawing_ranks(const plan_mesh *m)
{
    return (int64_t)plan_mesh_size(m, AXIS_DP) * plan_mesh_size(m, AXIS_CP);
}

status train_rollouts_open(arena *a, const assemble_plans *plans, exec *e, const rollout_ends *ends,
                           comm_group *together, train_rollouts **out)
{
    train_rollouts *g = NULL;
    const int64_t n = plans->rollout.slots;
    TRY(arena_new(a, 1, &g));
    *g = (train_rollouts){.plans = plans, .e = e, .ends = ends, .slots = n, .together = together};
    TRY(arena_new(a, drawing_ranks(&plans->places.mesh) * DRAWN * n, &g->shared));
    g->chunk = plans->rollout.chunk;
    if (plans->rollout.pages > 0) {
        TRY(exec_pages_create(a, plans->rollout.pages, n, plans->rollout.context, &g->pages));
        TRY(exec_caches_find(a, &plans->run, plans->rollout.pages, EXEC_PAGE, &g->caches));
    } else {
        TRY(exec_caches_find(a, &plans->run, n, plans->rollout.context, &g->caches));
    }
    TRY(arena_new(a, n, &g->gone));
    g->gone[0] = true;
    TRY(arena_new(a, n, &g->seats));
    TRY(arena_new(a, n * g->chunk, &g->ids));
    TRY(arena_new(a, n * g->chunk, &g->positions));
    TRY(arena_new(a, n, &g->lengths));
    TRY(arena_new(a, n, &g->rows));
    TRY(exec_host_memory(e, n * (int64_t)sizeof(int32_t), (void **)&g->drawn));
    TRY(exec_host_memory(e, n * (int64_t)sizeof(float), (void **)&g->losses));
    TRY(arena_new(a, n, &g->draws));
    TRY(arena_new(a, n * PARAMS, &g->params));
    TRY(arena_new(a, 1, &g->results));
    *out = g;
    return ST_OK;
}

static status plan_run(train_rollouts *g, const plan *p)
{
    const int64_t n = p->own_sequences, width = (int64_t)sizeof(int32_t);
    exec_input input = {.settings = train_step_settings(g->plans->config),
                        .batch = {{"ids", g->ids, n * p->seq * width},
                                  {"positions", g->positions, n * p->seq * width},
                                  {"lengths", g->lengths, n * width},
                                  {"rows", g->rows, n * width},
                                  {"params", g->params, n * PARAMS * (int64_t)sizeof(float)},
                                  {"draws", g->draws, n * (int64_t)sizeof(int64_t)}},
                        .batch_count = 6};
    if (g->pages.count > 0) {
        input.batch[input.batch_count++] =
            (exec_batch){"pages", g->pages.tables, n * g->pages.each * width};
        g->most_used = max_i64(g->most_used, g->pages.count - g->pages.unused_count);
    }
    input.host.step = ++g->runs;
    input.host.sequences = p->sequences;
    TRY(exec_begin(g->e, p, &input));
    return exec_finish(g->e);
}

// The largest value of each, over all ranks that draw together.
static status agree(const train_rollouts *g, int32_t *values, int64_t count, const char *what)
{
    if (g->together == NULL) return ST_OK;
    return comm_all_reduce(g->together, values, count, DTYPE_I32, REDUCTION_MAX, what, __func__);
}

// Takes part in a chunk of another rank's prompt: all rows are padding, which no cache keeps.
static status prompt_idle(train_rollouts *g)
{
    memset(g->ids, 0, (size_t)g->chunk * sizeof(*g->ids));
    memset(g->positions, 0, (size_t)g->chunk * sizeof(*g->positions));
    g->lengths[0] = 0;
    g->rows[0] = (int32_t)g->chunk - 1;
    return plan_run(g, g->plans->rollout.prefill);
}

// Computes tokens [0, count) of a prompt in slot 0, a chunk at a time; rows in front of the first
// chunk are padding.
static status prompt_take(train_rollouts *g, const int32_t *prompt, int64_t count)
{
    const int64_t chunk = g->chunk;
    int64_t taken = count % chunk != 0 ? count % chunk - chunk : 0;
    if (g->pages.count > 0) {
        exec_page_copy none;
        exec_pages_cut(&g->pages, 0, 0);
        const bool has = exec_pages_grow(&g->pages, 0, 0, count, &none);
        ASSERT(has); // requests_begin made sure
    }
    g->kept = prompt;
    g->rows[0] = (int32_t)chunk - 1;
    for (; taken < count; taken += chunk) {
        for (int64_t i = 0; i < chunk; i++) {
            const int64_t at = taken + i;
            g->ids[i] = at < 0 ? 0 : prompt[at];
            g->positions[i] = at < 0 ? 0 : (int32_t)at;
        }
        g->lengths[0] = (int32_t)(taken + chunk);
        TRY(plan_run(g, g->plans->rollout.prefill));
    }
    return ST_OK;
}

static void sampling_set(train_rollouts *g, int64_t slot, uint64_t seed)
{
    const run_config *r = g->plans->config;
    const uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    float *params = g->params + slot * PARAMS;
    params[0] = (float)r->rollout.temperature;
    params[1] = (float)r->rollout.top_k;
    params[2] = (float)r->rollout.top_p;
    params[3] = 0.0F;
    memcpy(&params[4], &low, sizeof(low));
    memcpy(&params[5], &high, sizeof(high));
}

// Gives what the last stage drew to all ranks with the same sequences. The others contribute the
// least number, which as bits of a float is -0.
static status drawn_share(train_rollouts *g)
{
    const plan_mesh *m = &g->plans->places.mesh;
    const int64_t n = g->slots, all = drawing_ranks(m) * DRAWN * n;
    const int64_t at = m->at[AXIS_DP] * plan_mesh_size(m, AXIS_CP) + m->at[AXIS_CP];
    const size_t bytes = (size_t)n * sizeof(int32_t);
    int32_t *own = g->shared + at * DRAWN * n;
    for (int64_t i = 0; i < all; i++) g->shared[i] = INT32_MIN;
    if (g->plans->rollout.decode->outputs[0] >= 0) {
        memcpy(own + DRAWN_ID * n, g->drawn, bytes);
        memcpy(own + DRAWN_LOSS * n, g->losses, bytes);
    }
    TRY(agree(g, g->shared, all, "drawn tokens"));
    memcpy(g->drawn, own + DRAWN_ID * n, bytes);
    memcpy(g->losses, own + DRAWN_LOSS * n, bytes);
    return ST_OK;
}

// Gives the seat its page for one more token.
static status page_extend(train_rollouts *g, int64_t slot, seat *s)
{
    exec_page_copy copy;
    const int64_t unused = g->pages.unused_count;
    const bool has = exec_pages_grow(&g->pages, slot, s->length, s->length + 1, &copy);
    ASSERT(has); // it waited until there were all
    s->due -= unused - g->pages.unused_count;
    ASSERT(s->due >= 0);
    return exec_page_copied(g->e, &g->caches, &copy);
}

// Appends a token to each seat that is taken, and draws the next ones.
static status decode(train_rollouts *g)
{
    const plan *p = g->plans->rollout.decode;
    const int64_t n = g->slots;
    for (int64_t b = 0; b < n; b++) {
        seat *s = &g->seats[b];
        const bool is_taken = s->request >= 0;
        if (is_taken && g->pages.count > 0) TRY(page_extend(g, b, s));
        g->ids[b] = is_taken ? s->last : 0;
        g->positions[b] = is_taken ? s->length : 0;
        g->lengths[b] = is_taken ? s->length + 1 : 0;
        g->rows[b] = (int32_t)b;
    }
    TRY(plan_run(g, p));
    if (p->outputs[0] >= 0) {
        TRY(exec_read_transient(g->e, p, p->outputs[0], g->drawn, n * (int64_t)sizeof(int32_t)));
        TRY(exec_read_transient(g->e, p, p->outputs[1], g->losses, n * (int64_t)sizeof(float)));
    }
    return plan_mesh_size(&g->plans->places.mesh, AXIS_PP) > 1 ? drawn_share(g) : ST_OK;
}

static bool is_end(const train_rollouts *g, int32_t id)
{
    for (int64_t i = 0; i < g->ends->count; i++) {
        if (g->ends->ids[i] == id) return true;
    }
    return false;
}

static status drawn_take(train_rollouts *g, int64_t slot, rollout_answer *answers)
{
    seat *s = &g->seats[slot];
    rollout_answer *to = &answers[s->request];
    const int32_t id = g->drawn[slot];
    if (id < 0 || id >= g->plans->spec->vocab) {
        return fail(ST_NUMERICS, "the token drawn is %d of a vocabulary of %lld", id,
                    (long long)g->plans->spec->vocab);
    }
    to->ids[to->count] = id;
    to->losses[to->count++] = g->losses[slot];
    to->has_ended = is_end(g, id);
    s->last = id;
    s->length++;
    g->draws[slot]++;
    if (to->has_ended || to->count == g->plans->config->rollout.max_tokens) {
        s->request = -1;
        s->due = 0;
        if (g->pages.count > 0) exec_pages_cut(&g->pages, slot, 0);
    }
    return ST_OK;
}

// The last token of a prompt is decoded, which draws the next one.
static bool prompt_is_there(const train_rollouts *g, const rollout_request *from)
{
    return g->kept == from->prompt || from->count == 1;
}

// Pages that the request's longest completion takes in addition to those full of its prompt.
static int64_t pages_due(const train_rollouts *g, const rollout_request *from)
{
    const int64_t before = from->count - 1, most = before + g->plans->config->rollout.max_tokens;
    return exec_pages_of(most) - before / EXEC_PAGE;
}

// Whether there are pages for the request, and for its prompt if that is not there, without those
// that the completions which are drawn now may take.
static bool has_pages(const train_rollouts *g, const rollout_request *from)
{
    if (g->pages.count == 0) return true;
    int64_t left = g->pages.unused_count - pages_due(g, from);
    for (int64_t b = 1; b < g->slots; b++) left -= g->seats[b].due;
    if (prompt_is_there(g, from)) return left >= 0;
    return left + exec_pages_freed(&g->pages, g->gone) >= exec_pages_of(from->count - 1);
}

static status request_begin(train_rollouts *g, int64_t slot, const rollout_request *from,
                            int64_t index)
{
    const int64_t before = from->count - 1;
    ASSERT(prompt_is_there(g, from));
    if (g->pages.count == 0) {
        TRY(exec_caches_copy(g->e, &g->caches, 0, slot, before));
    } else if (before > 0) {
        exec_pages_share(&g->pages, 0, slot, before);
    }
    sampling_set(g, slot, from->seed);
    g->draws[slot] = 0;
    g->seats[slot] =
        (seat){.request = index, .last = from->prompt[before], .length = (int32_t)before};
    if (g->pages.count > 0) g->seats[slot].due = pages_due(g, from);
    return ST_OK;
}

// Requests of a call, of which the first `next` have begun.
typedef struct drawing {
    const rollout_request *requests;
    int64_t count, next;
} drawing;

// Gives free slots to the next requests whose prompt is there. Returns in due[0] the chunks of the
// prompt that must be computed before further ones begin, in due[1] the slots that are taken.
static status requests_begin(train_rollouts *g, drawing *d, int32_t due[2])
{
    due[0] = due[1] = 0;
    for (int64_t b = 1; b < g->slots; b++) {
        const bool is_free =
            g->seats[b].request < 0 && d->next < d->count && has_pages(g, &d->requests[d->next]);
        if (is_free && prompt_is_there(g, &d->requests[d->next])) {
            TRY(request_begin(g, b, &d->requests[d->next], d->next));
            d->next++;
        } else if (is_free) {
            due[0] = (int32_t)((d->requests[d->next].count - 1 + g->chunk - 1) / g->chunk);
        }
        due[1] += g->seats[b].request >= 0 ? 1 : 0;
    }
    return ST_OK;
}

// Fills the slots; *taken: whether any rank has one to extend.
static status slots_fill(train_rollouts *g, drawing *d, bool *taken)
{
    int32_t own[2], due[2];
    do {
        TRY(requests_begin(g, d, own));
        memcpy(due, own, sizeof(due));
        TRY(agree(g, due, 2, "completions"));
        if (own[0] > 0)
            TRY(prompt_take(g, d->requests[d->next].prompt, d->requests[d->next].count - 1));
        for (int32_t i = own[0]; i < due[0]; i++) TRY(prompt_idle(g));
    } while (due[0] > 0);
    *taken = due[1] > 0;
    return ST_OK;
}

// These runs are no steps of the job, so their results are dropped.
static status results_drop(train_rollouts *g)
{
    bool any = true;
    int64_t step = 0;
    while (any) TRY(exec_results(g->e, g->results, &step, &any));
    return ST_OK;
}

status train_rollouts_draw(train_rollouts *g, const rollout_request *requests,
                           rollout_answer *answers, int64_t count, bool (*stopped)(void *context),
                           void *context, bool *whole)
{
    drawing d = {.requests = requests, .count = count};
    bool taken = true;
    g->kept = NULL; // the weights have changed
    *whole = false;
    g->most_used = 0;
    for (int64_t b = 0; b < g->slots; b++) {
        g->seats[b] = (seat){.request = -1};
        if (g->pages.count > 0) exec_pages_cut(&g->pages, b, 0);
    }
    for (int64_t i = 0; i < count; i++) {
        answers[i].count = 0;
        answers[i].has_ended = false;
    }
    while (taken) {
        if (stopped(context)) return results_drop(g);
        TRY(slots_fill(g, &d, &taken));
        if (taken) TRY(decode(g));
        for (int64_t b = 1; b < g->slots; b++) {
            if (g->seats[b].request >= 0) TRY(drawn_take(g, b, answers));
        }
    }
    *whole = true;
    return results_drop(g);
}

int64_t train_rollouts_cache_used(const train_rollouts *g)
{
    return g->most_used * EXEC_PAGE;
}
