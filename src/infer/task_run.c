// Opens a model as a task needs it: as long as its longest text, as many rows as fit.
#include "infer/task_run.h"

#include "base/format/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- the ends of texts --------------------------------------------------------------------------

static void end_add(infer_end_ids *ends, int64_t vocab, int64_t id)
{
    if (id >= 0 && id < vocab && ends->count < INFER_ENDS_MAX) {
        ends->ids[ends->count++] = (int32_t)id;
    }
}

static void json_add(infer_end_ids *ends, int64_t vocab, const json *value)
{
    const bool is_list = json_kind_of(value) == JSON_LIST;
    const int64_t count = is_list ? json_count(value) : 1;
    for (int64_t i = 0; i < count; i++) {
        end_add(ends, vocab, json_int(is_list ? json_at(value, i) : value, -1));
    }
}

status infer_ends_find(const host *h, arena *a, const char *folder, int64_t vocab,
                       const data_tokenizer *t, const data_chat *chat, infer_end_ids *out)
{
    static const char *const names[] = {"config.json", "generation_config.json"};
    enum { CONFIG_LIMIT_BYTES = 1 << 24 };
    *out = (infer_end_ids){.count = 0};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        char *path = NULL;
        json *root = NULL;
        file_info info;
        TRY(path_join(a, folder, names[i], &path));
        TRY(h->api->path_info(h, path, &info));
        if (info.kind != FILE_KIND_REGULAR) continue;
        TRY(json_read(h, path, CONFIG_LIMIT_BYTES, &root));
        json_add(out, vocab, json_get(root, "eos_token_id"));
        json_free(root);
    }
    int32_t ends[DATA_CHAT_ENDS_MAX];
    const int64_t count = chat != NULL ? data_chat_ends(chat, ends) : 0;
    for (int64_t i = 0; i < count; i++) end_add(out, vocab, ends[i]);
    end_add(out, vocab, data_tokenizer_eot(t));
    return ST_OK;
}

status infer_open_fitting(const host *h, arena *a, const char *folder, infer_options *options,
                          infer **out)
{
    for (;;) {
        const status st = infer_open(h, a, folder, options, out);
        if (st != ST_DOES_NOT_FIT || options->slots <= 1) return st;
        options->slots /= 2;
        error_clear();
    }
}

// ---- running ------------------------------------------------------------------------------------

static status scorer_open(const task_run_args *args, arena *a, int64_t seq, infer_scorer **out)
{
    enum { TOKENS_AT_ONCE = 4096 };
    infer_options options = args->options;
    options.context = seq;
    options.slots = args->batch > 0 ? args->batch : max_i64(1, TOKENS_AT_ONCE / seq);
    return infer_scorer_open(args->h, a, args->folder, &options, false, out);
}

static status choice_run(const task_run_args *args, arena *a, const task_spec *spec, int64_t most,
                         task_outcome *out)
{
    infer_scorer *scorer = NULL;
    TRY(task_read(args->h, a, args->tokenizer, spec, args->limit, &out->items));
    TRY(scorer_open(args, a, min_i64(most, max_i64(1, out->items.longest - 1)), &scorer));
    const status st = task_score(scorer, a, &out->items, args->watcher, &out->result);
    infer_scorer_close(scorer);
    return st;
}

static status perplexity_run(const task_run_args *args, arena *a, const task_spec *spec,
                             int64_t most, task_outcome *out)
{
    infer_scorer *scorer = NULL;
    TRY(scorer_open(args, a, most, &scorer));
    const status st = task_perplexity(scorer, args->h, a, args->tokenizer, spec, args->limit,
                                      args->watcher, &out->result);
    infer_scorer_close(scorer);
    return st;
}

static status answers_generate(const task_run_args *args, arena *a, const task_spec *spec,
                               task_prompts *prompts)
{
    enum { SLOTS = 8, CHUNK_MAX = 256 };
    infer_end_ids ends;
    task_model m = {.t = args->tokenizer, .ends = ends.ids};
    infer_options options = args->options;
    options.context = prompts->longest + spec->max_tokens;
    options.chunk = min_i64(prompts->longest, CHUNK_MAX);
    options.slots = min_i64(args->batch > 0 ? args->batch : SLOTS, prompts->count * spec->samples);
    TRY(infer_ends_find(args->h, a, args->folder, args->spec->vocab, args->tokenizer, args->chat,
                        &ends));
    m.end_count = ends.count;
    TRY(infer_open_fitting(args->h, a, args->folder, &options, &m.g));
    const status st = task_generate(&m, a, spec, prompts, args->watcher);
    infer_close(m.g);
    return st;
}

static status generation_run(const task_run_args *args, arena *a, const task_spec *spec,
                             int64_t most, task_outcome *out)
{
    TRY(task_grade_check(args->h, a, spec));
    TRY(task_prompts_read(args->h, a, args->tokenizer, spec, args->chat, most, args->limit,
                          &out->prompts));
    TRY(answers_generate(args, a, spec, &out->prompts));
    return task_grade(args->h, a, spec, &out->prompts, args->processors, args->watcher,
                      &out->result);
}

status task_run(const task_run_args *args, arena *a, const task_spec *spec, task_outcome *out)
{
    const int64_t most = args->seq > 0 ? args->seq : args->spec->context;
    *out = (task_outcome){.items = {.count = 0}};
    if (spec->kind == TASK_KIND_CHOICE) return choice_run(args, a, spec, most, out);
    if (spec->kind == TASK_KIND_PERPLEXITY) return perplexity_run(args, a, spec, most, out);
    return generation_run(args, a, spec, most, out);
}

// ---- results by name ----------------------------------------------------------------------------

typedef struct metric_list {
    task_metric *items;
    int64_t count;
} metric_list;

static void metric_add(metric_list *l, const char *name, double value, double error,
                       const char *meaning)
{
    ASSERT(l->count < TASK_METRICS_MAX);
    task_metric *m = &l->items[l->count++];
    *m = (task_metric){.value = value, .error = error, .meaning = meaning};
    (void)snprintf(m->name, sizeof(m->name), "%s", name);
}

static void share_add(metric_list *l, const char *name, task_share s, const char *meaning)
{
    if (s.value >= 0.0) metric_add(l, name, s.value, s.error, meaning);
}

int64_t task_metrics(const task_spec *spec, const task_result *r, task_metric out[TASK_METRICS_MAX])
{
    static const double ln2 = 0.69314718055994530942;
    metric_list l = {.items = out};
    if (spec->kind == TASK_KIND_CHOICE) {
        share_add(&l, "acc", r->acc, "likeliest choice");
        share_add(&l, "acc_norm", r->acc_norm, "likeliest for its characters");
        share_add(&l, "acc_bytes", r->acc_bytes, "likeliest for its bytes");
    } else if (spec->kind == TASK_KIND_PERPLEXITY) {
        const double bytes = (double)max_i64(1, r->bytes);
        metric_add(&l, "word_perplexity", exp(r->nats / (double)max_i64(1, r->words)), -1.0, "");
        metric_add(&l, "byte_perplexity", exp(r->nats / bytes), -1.0, "");
        metric_add(&l, "bits_per_byte", r->nats / ln2 / bytes, -1.0, "");
        metric_add(&l, "token_perplexity", exp(r->nats / (double)r->tokens), -1.0, "");
    } else {
        share_add(&l, "exact_match", r->exact, "equal to the target");
        share_add(&l, "exact_match_last", r->exact_last, "last match equal to the target");
        share_add(&l, "matched", r->matched, "one of the expressions matches");
        share_add(&l, "passed", r->passed, "accepted by the command");
        for (int64_t i = 0; i < spec->pass.count; i++) {
            char name[40];
            (void)snprintf(name, sizeof(name), "pass@%.20s", spec->pass.items[i]);
            share_add(&l, name, r->pass[i], "one of so many is right");
        }
    }
    return l.count;
}

status task_outcome_values(arena *a, const task_spec *spec, const task_outcome *o,
                           const char *metric, double **out, int64_t *count)
{
    static const char *const names[] = {"acc", "acc_norm", "acc_bytes"};
    *out = NULL;
    *count = 0;
    if (spec->kind == TASK_KIND_GENERATION) {
        *count = o->prompts.count;
        return task_values(a, spec, &o->prompts, metric, out);
    }
    for (int by = 0; by < COUNT_OF(names) && spec->kind == TASK_KIND_CHOICE; by++) {
        if (strcmp(names[by], metric) != 0) continue;
        *count = o->items.count;
        TRY(arena_new(a, *count, out));
        for (int64_t i = 0; i < *count; i++) {
            const task_item *x = &o->items.items[i];
            (*out)[i] = task_best(x, by) == x->gold ? 1.0 : 0.0;
        }
    }
    return ST_OK;
}
