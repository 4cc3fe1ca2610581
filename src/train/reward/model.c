// A reward model of train.objective = reward, run in the job: the score of the last token of prompt
// and completion. Its arena is not that of the plan, and its weights are whole on each rank that
// rewards.
#include "infer/evaluate.h"
#include "train/reward/reward.h"

#include <string.h>

enum { ROWS_MAX = 8 }; // scored at once

typedef struct scoring {
    infer_scorer *scorer;
    float *losses; // [rows][seq]
    int32_t *ids, *labels;
} scoring;

// The model reads the run's tokens, so its tokenizer must be the run's.
static status tokenizer_check(const reward_context *x, arena *a, const char *folder)
{
    bool is_checkpoint = false;
    char own[33], its[33] = "";
    const char *found = its;
    TRY(ckpt_folder_is(x->h, a, folder, &is_checkpoint));
    if (is_checkpoint) {
        ckpt_info info;
        TRY(ckpt_info_read(x->h, a, folder, &info));
        found = info.tokenizer != NULL ? info.tokenizer : "";
    } else {
        data_tokenizer *t = NULL;
        const status st = data_tokenizer_open(x->h, a, folder, &t);
        if (st == ST_NOT_FOUND) {
            error_clear();
            return ST_OK;
        }
        TRY(st);
        (void)hash128_text(data_tokenizer_id(t), its);
        data_tokenizer_close(t);
    }
    (void)hash128_text(data_tokenizer_id(x->tokenizer), own);
    if (found[0] == '\0' || strcmp(found, own) == 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "reward.model = %s has another tokenizer than the run (%s, %s), so it would read "
                "other texts; train it from the same model",
                folder, found, own);
}

static status open_model(reward_context *x, arena *a)
{
    const run_config *r = x->run;
    scoring *s = NULL;
    const int64_t seq = r->train.seq, rows = min_i64(ROWS_MAX, max_i64(1, x->most));
    const infer_options options = {.threads = (int)x->threads,
                                   .device = run_config_device(r),
                                   .ordinal = x->ordinal,
                                   .backend = run_config_backend(r),
                                   .level = run_config_level(r),
                                   .compute = run_config_types(r).compute,
                                   .context = seq,
                                   .slots = rows,
                                   .scores = true,
                                   .strict = r->determinism.mode == RUN_STRICT,
                                   .memory_limit_bytes = r->memory.limit};
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, rows * seq, &s->losses));
    TRY(arena_new(a, seq, &s->ids));
    TRY(arena_new(a, seq, &s->labels));
    TRY(tokenizer_check(x, a, x->keys->model));
    TRY(infer_scorer_open(x->h, a, x->keys->model, &options, false, &s->scorer));
    x->state = s;
    return ST_OK;
}

static void close_model(reward_context *x)
{
    const scoring *s = x->state;
    if (s != NULL) infer_scorer_close(s->scorer);
    x->state = NULL;
}

static int64_t row_fill(scoring *s, int64_t row, const reward_case *c)
{
    const int64_t count = c->prompt_count + c->token_count;
    ASSERT(count > 0 && count <= infer_scorer_rows(s->scorer)->seq);
    memcpy(s->ids, c->prompt_ids, (size_t)c->prompt_count * sizeof(*s->ids));
    memcpy(s->ids + c->prompt_count, c->tokens, (size_t)c->token_count * sizeof(*s->ids));
    for (int64_t t = 0; t < count; t++) s->labels[t] = t + 1 == count ? s->ids[t] : -1;
    infer_scorer_row(s->scorer, row, s->ids, s->labels, count);
    return count - 1;
}

static status all(const reward_context *x, const reward_case *cases, int64_t count, double *out)
{
    scoring *s = x->state;
    const infer_rows *rows = infer_scorer_rows(s->scorer);
    int64_t last[ROWS_MAX];
    for (int64_t at = 0; at < count; at += rows->rows) {
        const int64_t some = min_i64(rows->rows, count - at);
        infer_score sum = {.tokens = 0};
        for (int64_t i = 0; i < some; i++) last[i] = row_fill(s, i, &cases[at + i]);
        TRY(infer_scorer_run(s->scorer, some, &sum, s->losses));
        for (int64_t i = 0; i < some; i++) {
            out[at + i] = -(double)s->losses[i * rows->seq + last[i]];
        }
    }
    return ST_OK;
}

const reward_rule reward_model = {
    .name = "model", .open = open_model, .close = close_model, .all = all};
