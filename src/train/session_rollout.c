// Rollouts: before a step the job draws the completions that the step trains on and rewards them.
//
//   prompts of the step -> completions of this rank's sequences -> rewards -> all ranks
//                       -> advantages within each group          -> batch of the step
//
// Ranks along cp have pieces of the same sequences, and each draws whole completions of some of
// them; then all give theirs to all.
//
// Sequence n of the run is completion n % group of its prompt; the prompts come in a new order each
// epoch. The seed of a completion is a function of (rollout.seed, prompt, step, completion), so a
// resumed run and another layout draw the same. A sequence holds its completion from position 0 on,
// and padding behind it.
#include "base/hash.h"
#include "train/reward/reward.h"
#include "train/rollout.h"
#include "train/rollout_ahead.h"
#include "train/session.h"

#include <math.h>
#include <string.h>

enum { SUMS = 2, SHARED = 3, COPIES = 2, CUT = 3 };

struct session_rollouts {
    const data_prompts *prompts;
    rollout_ends ends;
    train_rollouts *drawing;
    const reward_rule *rule;
    reward_context rewarding;
    reward_case *cases;               // of the step
    int64_t rows;                     // the most sequences of this rank in a step
    int64_t drawn_first, drawn_count; // of the batch, that this rank has drawn
    rollout_request *requests;
    rollout_answer *answers;
    int64_t *of; // [row] its prompt
    int32_t *ids, *labels, *positions, *documents;
    int32_t *cut; // with layout.cp: this rank's positions of the first three
    float *given;
    // The rewards of all sequences of the step, then sums of tokens and of ended ones.
    double *all;
    double reward, tokens, ended; // means of the step that was drawn last
    rollout_ahead ahead;          // with rollout.staleness
    // With rollout.staleness or layout.cp: [most sequences of a step][SHARED + 2 x tokens of each].
    int32_t *shared;
    text files[COPIES];
    struct {
        int64_t prompt, completion; // places in `text`
    } * texts;
    data_bytes text;
};

// One of the ranks with the same completions rewards them.
static bool rewards_here(const session *s)
{
    const plan_mesh *m = &s->options.mesh;
    return m->at[AXIS_TP] == 0 && m->at[AXIS_PP] == 0;
}

static status answers_check(const session *s, const struct session_rollouts *x)
{
    const char *pattern = s->r->reward.pattern;
    const bool stands = pattern != NULL && strstr(pattern, "{answer}") != NULL;
    if (!x->rule->needs_answer && !stands) return ST_OK;
    for (int64_t i = 0; i < x->prompts->count; i++) {
        if (x->prompts->items[i].answer != NULL || x->prompts->items[i].is_hidden) continue;
        return fail(ST_DATA, "%s: prompt %lld has no \"answer\", which reward.kind = %s needs",
                    s->r->rollout.prompts, (long long)i + 1, x->rule->name);
    }
    return ST_OK;
}

static status buffers_make(session *s, struct session_rollouts *x)
{
    const int64_t seq = s->r->train.seq, tokens = s->r->rollout.max_tokens;
    const int64_t most = run_config_batch_max(s->r);
    int32_t *ids = NULL;
    float *losses = NULL;
    int64_t first = 0;
    x->rows = most;
    train_loader_own(s->loader, &first, &x->rows);
    TRY(arena_new(s->a, x->rows, &x->requests));
    TRY(arena_new(s->a, x->rows, &x->answers));
    TRY(arena_new(s->a, x->rows, &x->of));
    TRY(arena_new(s->a, x->rows, &x->cases));
    TRY(arena_new(s->a, x->rows, &x->texts));
    TRY(arena_new(s->a, x->rows * tokens, &ids));
    TRY(arena_new(s->a, x->rows * tokens, &losses));
    for (int64_t i = 0; i < x->rows; i++) {
        x->answers[i].ids = ids + i * tokens;
        x->answers[i].losses = losses + i * tokens;
    }
    TRY(arena_new(s->a, x->rows * seq, &x->ids));
    TRY(arena_new(s->a, x->rows * seq, &x->labels));
    TRY(arena_new(s->a, x->rows * seq, &x->positions));
    TRY(arena_new(s->a, x->rows * seq, &x->documents));
    TRY(arena_new(s->a, x->rows * seq * GIVEN_COLUMNS, &x->given));
    TRY(arena_new(s->a, most + SUMS, &x->all));
    if (s->r->layout.cp > 1) {
        TRY(arena_new(s->a, CUT * x->rows * seq / s->r->layout.cp, &x->cut));
        TRY(arena_new(s->a, most * (SHARED + 2 * tokens), &x->shared));
    }
    if (s->r->rollout.staleness == 0) return ST_OK;
    for (int i = 0; i < COPIES; i++) x->files[i].a = s->a;
    if (x->shared == NULL) TRY(arena_new(s->a, most * (SHARED + 2 * tokens), &x->shared));
    x->ahead = (rollout_ahead){.capacity = s->r->rollout.staleness + 1,
                               .rows = most,
                               .tokens = tokens,
                               .prompts = x->prompts->count};
    return rollout_ahead_init(s->a, &x->ahead);
}

// Whether plans that draw have collectives between ranks with different sequences or layers.
static bool draws_together(const session *s)
{
    const run_config *r = s->r;
    return r->layout.pp > 1 || r->layout.zero >= 3 || r->layout.ep > 1;
}

status session_rollouts_open(session *s)
{
    struct session_rollouts *x = NULL;
    if (!run_config_has_rollouts(s->r)) return ST_OK;
    TRY(arena_new(s->a, 1, &x));
    x->prompts = train_loader_prompts(s->loader);
    x->ends = (rollout_ends){x->prompts->ends, x->prompts->end_count};
    x->rule = reward_rule_at(s->r->reward.kind);
    x->rewarding = (reward_context){.h = s->h,
                                    .run = s->r,
                                    .keys = &s->r->reward,
                                    .tokenizer = train_loader_decoder(s->loader),
                                    .threads = max_i64(1, s->r->kernels.threads)};
    if (s->ranks.all != NULL) x->rewarding.ordinal = comm_local_rank(s->ranks.all);
    text warning = {.a = s->a};
    if (x->rule->check != NULL) TRY(x->rule->check(&x->rewarding, &warning));
    if (warning.length > 0 && session_is_first(s)) {
        session_say(s, LOG_WARN, "%s", warning.bytes);
    }
    TRY(answers_check(s, x));
    TRY(buffers_make(s, x));
    TRY(train_rollouts_open(s->a, &s->plans, s->job.e, &x->ends,
                            draws_together(s) ? s->ranks.hosts : NULL, &x->drawing));
    if (x->ends.count == 0 && session_is_first(s)) {
        session_say(s, LOG_WARN,
                    "the tokenizer has no token that ends a text, so each completion has "
                    "rollout.max_tokens = %lld tokens",
                    (long long)s->r->rollout.max_tokens);
    }
    if (s->r->rollout.staleness > 0 && session_is_first(s)) {
        const long long n = (long long)s->r->rollout.staleness;
        session_say(
            s, LOG_INFO,
            "rollout.staleness = %lld: the completions of step s are drawn with the weights "
            "that step s - %lld begins with, those of the first steps with the first weights",
            n, n);
    }
    s->rollouts = x;
    x->rewarding.most = x->rows;
    return x->rule->open != NULL && rewards_here(s) ? x->rule->open(&x->rewarding, s->a) : ST_OK;
}

void session_rollouts_close(session *s)
{
    struct session_rollouts *x = s->rollouts;
    if (x == NULL) return;
    data_bytes_deinit(&x->text);
    if (x->rule->close != NULL) x->rule->close(&x->rewarding);
}

// ---- drawing ------------------------------------------------------------------------------------

static void requests_make(const session *s, struct session_rollouts *x, int64_t step, int64_t first,
                          int64_t count)
{
    const int64_t group = s->r->rollout.group;
    const uint64_t seed = (uint64_t)s->r->rollout.seed;
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = first + i, prompt = data_prompts_at(x->prompts, seed, n / group);
        const int64_t facts[] = {prompt, step, n % group};
        const data_prompt *p = &x->prompts->items[prompt];
        x->of[i] = prompt;
        x->requests[i] = (rollout_request){
            .prompt = p->ids, .count = p->count, .seed = hash64(facts, sizeof(facts), seed)};
    }
}

// Ranks of several would have to stop at the same token, so they draw to the end.
static bool drawing_stops(void *context)
{
    session *s = context;
    session_progress(s, "drawing completions", false);
    return s->ranks.hosts == NULL && session_should_stop(s);
}

static status text_of(session *s, struct session_rollouts *x, const int32_t *ids, int64_t count,
                      int64_t *at)
{
    *at = x->text.count;
    TRY(data_tokenizer_decode(train_loader_decoder(s->loader), ids, count, DATA_DECODE_SKIP_SPECIAL,
                              &x->text));
    return data_bytes_add(&x->text, "", 1);
}

static status own_reward(session *s, struct session_rollouts *x, int64_t count, double *out)
{
    x->text.count = 0;
    for (int64_t i = 0; i < count; i++) {
        const rollout_answer *answer = &x->answers[i];
        const rollout_request *asked = &x->requests[i];
        TRY(text_of(s, x, answer->ids, answer->count - (answer->has_ended ? 1 : 0),
                    &x->texts[i].completion));
        if (!x->rule->needs_prompt) continue;
        TRY(text_of(s, x, asked->prompt, asked->count, &x->texts[i].prompt));
    }
    for (int64_t i = 0; i < count; i++) {
        const char *prompt = x->text.items + x->texts[i].prompt;
        x->cases[i] = (reward_case){.prompt = x->rule->needs_prompt ? prompt : NULL,
                                    .completion = x->text.items + x->texts[i].completion,
                                    .answer = x->prompts->items[x->of[i]].answer,
                                    .prompt_ids = x->requests[i].prompt,
                                    .prompt_count = x->requests[i].count,
                                    .tokens = x->answers[i].ids,
                                    .token_count = x->answers[i].count};
    }
    return reward_score(x->rule, &x->rewarding, x->cases, count, out);
}

static void means_make(struct session_rollouts *x, int64_t batch)
{
    x->reward = 0.0;
    for (int64_t i = 0; i < batch; i++) x->reward += x->all[i] / (double)batch;
    x->tokens = x->all[batch] / (double)batch;
    x->ended = x->all[batch + 1] / (double)batch;
}

static status rewards_make(session *s, struct session_rollouts *x, int64_t batch)
{
    const int64_t count = x->drawn_count;
    memset(x->all, 0, (size_t)(batch + SUMS) * sizeof(double));
    if (rewards_here(s)) TRY(own_reward(s, x, count, x->all + x->drawn_first));
    for (int64_t i = 0; i < count && rewards_here(s); i++) {
        x->all[batch] += (double)x->answers[i].count;
        x->all[batch + 1] += x->answers[i].has_ended ? 1.0 : 0.0;
    }
    if (s->ranks.hosts != NULL) {
        TRY(comm_all_reduce(s->ranks.hosts, x->all, batch + SUMS, DTYPE_F64, REDUCTION_SUM,
                            "rewards", __func__));
    }
    means_make(x, batch);
    return ST_OK;
}

// The reward of sequence `at` of the batch over the mean of its group.
static double advantage_of(const session *s, const struct session_rollouts *x, int64_t at)
{
    const int64_t n = s->r->rollout.group;
    const double *rewards = x->all + at / n * n;
    double mean = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) mean += rewards[i] / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (rewards[i] - mean) * (rewards[i] - mean);
    const double over = x->all[at] - mean;
    return s->r->objective.scale == RUN_SCALE_GROUP
               ? over / (sqrt(squares / (double)(n - 1)) + 1e-4)
               : over;
}

// ---- the batch ----------------------------------------------------------------------------------

// Row t holds token t and predicts token t + 1; only tokens of the completion are labels. The last
// one is only a label.
static void row_fill(const session *s, struct session_rollouts *x, int64_t i, double advantage)
{
    const int64_t seq = s->r->train.seq, prompt = x->requests[i].count;
    const rollout_answer *answer = &x->answers[i];
    const int64_t used = prompt + answer->count - 1;
    int32_t *ids = x->ids + i * seq, *labels = x->labels + i * seq;
    float *given = x->given + i * seq * GIVEN_COLUMNS;
    ASSERT(used <= seq);
    memset(given, 0, (size_t)(seq * GIVEN_COLUMNS) * sizeof(float));
    for (int64_t t = 0; t < seq; t++) {
        const int64_t next = t + 1 - prompt; // token of the completion that row t predicts
        const bool is_label = next >= 0 && next < answer->count;
        ids[t] = t < prompt ? x->requests[i].prompt[t] : t < used ? answer->ids[t - prompt] : 0;
        labels[t] = is_label ? answer->ids[next] : -1;
        x->positions[i * seq + t] = (int32_t)(t < used ? t : t - used);
        x->documents[i * seq + t] = t < used ? 0 : 1;
        if (!is_label) continue;
        given[t * GIVEN_COLUMNS + GIVEN_LABEL] = 1.0F;
        given[t * GIVEN_COLUMNS + GIVEN_OLD] = -answer->losses[next];
        given[t * GIVEN_COLUMNS + GIVEN_ADVANTAGE] = (float)advantage;
    }
}

// The sequences of a batch that this rank draws: those along cp share theirs.
static void drawn_set(const session *s, struct session_rollouts *x, int64_t batch)
{
    const plan_mesh *m = &s->options.mesh;
    const int64_t cp = plan_mesh_size(m, AXIS_CP), at = m->at[AXIS_CP];
    int64_t own = 0, count = batch;
    train_loader_own(s->loader, &own, &count);
    ASSERT(count <= x->rows);
    x->drawn_first = own + count * at / cp;
    x->drawn_count = own + count * (at + 1) / cp - x->drawn_first;
}

// Gives the completions that this rank has drawn to all ranks. A rank contributes the least number
// for those of others, which as bits of a float is -0.
static status completions_share(const session *s, struct session_rollouts *x, int64_t batch)
{
    const int64_t tokens = s->r->rollout.max_tokens, width = SHARED + 2 * tokens;
    for (int64_t i = 0; i < batch * width; i++) x->shared[i] = INT32_MIN;
    for (int64_t i = 0; i < x->drawn_count; i++) {
        const rollout_answer *answer = &x->answers[i];
        int32_t *to = x->shared + (x->drawn_first + i) * width;
        to[0] = (int32_t)answer->count;
        to[1] = answer->has_ended ? 1 : 0;
        to[2] = (int32_t)x->of[i];
        memcpy(to + SHARED, answer->ids, (size_t)answer->count * sizeof(int32_t));
        memcpy(to + SHARED + tokens, answer->losses, (size_t)answer->count * sizeof(int32_t));
    }
    if (s->ranks.hosts == NULL) return ST_OK;
    return comm_all_reduce(s->ranks.hosts, x->shared, batch * width, DTYPE_I32, REDUCTION_MAX,
                           "completions", __func__);
}

// Takes the completions of this rank's sequences, some of which other ranks have drawn.
static void completions_take(const session *s, struct session_rollouts *x, int64_t batch)
{
    const int64_t tokens = s->r->rollout.max_tokens, width = SHARED + 2 * tokens;
    int64_t own = 0, count = batch;
    train_loader_own(s->loader, &own, &count);
    for (int64_t i = 0; i < count; i++) {
        const int32_t *from = x->shared + (own + i) * width;
        const data_prompt *p = &x->prompts->items[from[2]];
        x->requests[i] = (rollout_request){.prompt = p->ids, .count = p->count};
        x->answers[i].count = from[0];
        x->answers[i].has_ended = from[1] != 0;
        memcpy(x->answers[i].ids, from + SHARED, (size_t)from[0] * sizeof(int32_t));
        memcpy(x->answers[i].losses, from + SHARED + tokens, (size_t)from[0] * sizeof(int32_t));
    }
}

// Draws the completions of a step, whose first sequence of the run is `first`, and their rewards.
static status batch_draw(session *s, struct session_rollouts *x, int64_t step, int64_t first,
                         int64_t batch, bool *whole)
{
    drawn_set(s, x, batch);
    requests_make(s, x, step, first + x->drawn_first, x->drawn_count);
    TRY(train_rollouts_draw(x->drawing, x->requests, x->answers, x->drawn_count, drawing_stops, s,
                            whole));
    return *whole ? rewards_make(s, x, batch) : ST_OK;
}

// ---- ahead of the step --------------------------------------------------------------------------

static status ahead_put(session *s, struct session_rollouts *x, int64_t step, int64_t batch)
{
    const int64_t tokens = x->ahead.tokens, width = SHARED + 2 * tokens;
    rollout_batch *b = rollout_ahead_at(&x->ahead, step);
    TRY(completions_share(s, x, batch));
    b->step = x->ahead.last = step;
    b->count = batch;
    for (int64_t i = 0; i < batch; i++) {
        const int32_t *from = x->shared + i * width;
        b->rewards[i] = x->all[i];
        b->lengths[i] = from[0];
        b->ended[i] = from[1];
        b->prompts[i] = from[2];
        memcpy(b->ids + i * tokens, from + SHARED, (size_t)tokens * sizeof(int32_t));
        memcpy(b->losses + i * tokens, from + SHARED + tokens, (size_t)tokens * sizeof(int32_t));
    }
    return ST_OK;
}

// Draws the batches up to the one that is drawn with the present weights.
static status ahead_draw(session *s, struct session_rollouts *x, int64_t step, bool *whole)
{
    int64_t first = s->sequences;
    *whole = true;
    for (int64_t n = step; n <= step + s->r->rollout.staleness && *whole; n++) {
        const int64_t batch = run_config_batch(s->r, n - 1);
        if (n > x->ahead.last) {
            TRY(batch_draw(s, x, n, first, batch, whole));
            if (*whole) TRY(ahead_put(s, x, n, batch));
        }
        first += batch;
    }
    return ST_OK;
}

// Makes the batch of a step that was drawn before the present one.
static void ahead_take(const session *s, struct session_rollouts *x, int64_t step, int64_t batch)
{
    const int64_t tokens = x->ahead.tokens;
    const rollout_batch *b = rollout_ahead_at(&x->ahead, step);
    int64_t own = 0, count = batch;
    ASSERT(b->step == step && b->count == batch);
    train_loader_own(s->loader, &own, &count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = own + i;
        const data_prompt *p = &x->prompts->items[b->prompts[n]];
        x->requests[i] = (rollout_request){.prompt = p->ids, .count = p->count};
        x->answers[i].count = b->lengths[n];
        x->answers[i].has_ended = b->ended[n] != 0;
        memcpy(x->answers[i].ids, b->ids + n * tokens, (size_t)b->lengths[n] * sizeof(int32_t));
        memcpy(x->answers[i].losses, b->losses + n * tokens, (size_t)b->lengths[n] * sizeof(float));
    }
    memset(x->all, 0, (size_t)(batch + SUMS) * sizeof(double));
    for (int64_t i = 0; i < batch; i++) {
        x->all[i] = b->rewards[i];
        x->all[batch] += (double)b->lengths[i];
        x->all[batch + 1] += (double)b->ended[i];
    }
    means_make(x, batch);
}

status session_rollouts_print(session *s, session_copy where, const char **out)
{
    struct session_rollouts *x = s->rollouts;
    *out = NULL;
    if (x == NULL || s->r->rollout.staleness == 0) return ST_OK;
    x->files[where].length = 0;
    TRY(rollout_ahead_print(&x->ahead, s->step, &x->files[where]));
    *out = x->files[where].bytes;
    return ST_OK;
}

status session_rollouts_load(session *s, const char *path, int64_t step)
{
    struct session_rollouts *x = s->rollouts;
    char *bytes = NULL;
    int64_t count = 0;
    json *root = NULL;
    if (x == NULL || s->r->rollout.staleness == 0) return ST_OK;
    x->ahead.last = step;
    TRY(ckpt_extra_read(s->h, s->a, path, "rollouts.json", &bytes, &count));
    if (bytes == NULL) return ST_OK;
    TRY(json_parse(bytes, count, path, &root));
    const status st = rollout_ahead_read(&x->ahead, step, root, path);
    json_free(root);
    return st;
}

// ---- the step -----------------------------------------------------------------------------------

status session_rollouts_take(session *s, int64_t step, int64_t batch, exec_input *input,
                             int64_t *wait_ns, bool *whole)
{
    struct session_rollouts *x = s->rollouts;
    const int64_t seq = s->r->train.seq, begin = session_now(s);
    int64_t own = 0, count = batch;
    train_loader_own(s->loader, &own, &count);
    if (s->r->rollout.staleness > 0) {
        TRY(ahead_draw(s, x, step, whole));
        if (*whole) ahead_take(s, x, step, batch);
    } else {
        TRY(batch_draw(s, x, step, s->sequences, batch, whole));
        if (*whole && s->r->layout.cp > 1) {
            TRY(completions_share(s, x, batch));
            completions_take(s, x, batch);
        }
    }
    if (!*whole) return ST_OK;
    for (int64_t i = 0; i < count; i++) row_fill(s, x, i, advantage_of(s, x, own + i));
    const int64_t bytes = count * seq * (int64_t)sizeof(int32_t), cp = s->r->layout.cp;
    const int32_t *columns[CUT] = {x->ids, x->labels, x->positions};
    for (int k = 0; k < CUT && cp > 1; k++) {
        int32_t *to = x->cut + k * count * seq / cp;
        train_loader_positions(s->loader, columns[k], count, to);
        columns[k] = to;
    }
    input->batch[0] = (exec_batch){"ids", columns[0], bytes / cp};
    input->batch[1] = (exec_batch){"labels", columns[1], bytes / cp};
    input->batch[2] = (exec_batch){"positions", columns[2], bytes / cp};
    input->batch[3] = (exec_batch){"documents", x->documents, bytes};
    input->batch[4] =
        (exec_batch){"given", x->given, count * seq * GIVEN_COLUMNS * (int64_t)sizeof(float)};
    input->batch_count = 5;
    *wait_ns = session_now(s) - begin;
    return ST_OK;
}

void session_rollouts_record(const session *s, obs_record *record)
{
    const struct session_rollouts *x = s->rollouts;
    if (x == NULL) return;
    const int64_t used = train_rollouts_cache_used(x->drawing);
    ASSERT(record->measure_count + 4 <= OBS_MEASURES);
    record->measures[record->measure_count++] = (obs_measure){"reward", x->reward, true};
    record->measures[record->measure_count++] = (obs_measure){"answer_tokens", x->tokens, true};
    record->measures[record->measure_count++] = (obs_measure){"answers_ended", x->ended, false};
    if (used == 0) return;
    record->measures[record->measure_count++] = (obs_measure){"cache_tokens", (double)used, false};
}
