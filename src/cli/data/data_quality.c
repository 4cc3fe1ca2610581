// Scores texts with a model for the filter quality of `data build`: the bits that the model needs
// for a byte of the beginning of a text, as `eval` measures them.
#include "cli/data/data_quality.h"
#include "cli/model_folder.h"
#include "infer/evaluate.h"

#include <stdlib.h>

typedef struct quality_scorer {
    arena *a;
    data_tokenizer *tokenizer;
    infer_scorer *scorer;
    int64_t seq;
    data_ids ids;
} quality_scorer;

static void close_scorer(void *state)
{
    quality_scorer *s = state;
    if (s == NULL) return;
    infer_scorer_close(s->scorer);
    data_tokenizer_close(s->tokenizer);
    data_ids_deinit(&s->ids);
    arena_destroy(s->a);
    free(s);
}

static status open_all(const cli_context *cli, const char *path, quality_scorer *s)
{
    enum { SEQ_MAX = 1024 };
    cli_context own = *cli; // the context's arena belongs to one thread
    cli_model model;
    TRY(arena_create("quality", 0, &s->a));
    own.a = s->a;
    TRY(cli_model_find(&own, path, &model));
    TRY(cli_tokenizer_open(&own, &model, NULL, &s->tokenizer));
    data_tokenizer_set_flags(s->tokenizer, 0); // texts of strangers hold no special tokens
    s->seq = min_i64(SEQ_MAX, model.seq > 0 ? model.seq : model.spec.context);
    // Strict: the same text gets the same bits on any machine and thread.
    const infer_options options = {
        .threads = 1, .compute = model.compute, .context = s->seq, .slots = 1, .strict = true};
    return infer_scorer_open(cli->h, s->a, model.folder, &options, false, &s->scorer);
}

static status open_scorer(void *context, const char *path, void **out)
{
    quality_scorer *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for a model that scores texts");
    const status st = open_all(context, path, s);
    if (st != ST_OK) close_scorer(s);
    if (st == ST_OK) *out = s;
    return st;
}

static status score(void *state, const char *bytes, int64_t count, double *bits, bool *is_known)
{
    static const double ln2 = 0.69314718055994530942;
    quality_scorer *s = state;
    infer_score sum = {.tokens = 0};
    exact_zero(&sum.nats);
    s->ids.count = 0;
    TRY(data_tokenizer_encode(s->tokenizer, bytes, count, 0, &s->ids));
    const int64_t n = min_i64(s->seq, s->ids.count - 1); // predicted tokens
    *is_known = n > 0;
    if (n <= 0) return ST_OK;
    infer_scorer_row(s->scorer, 0, s->ids.items, s->ids.items + 1, n);
    TRY(infer_scorer_run(s->scorer, 1, &sum, NULL));
    const double scored_bytes = (double)count * (double)n / (double)s->ids.count;
    *bits = exact_value(&sum.nats) / ln2 / scored_bytes;
    return ST_OK;
}

void data_quality_init(cli_context *cli, filter_scorer *out)
{
    *out =
        (filter_scorer){.context = cli, .open = open_scorer, .score = score, .close = close_scorer};
}
