// Runs task files one after the other; each opens the model for its own longest text.
#include "cli/infer/eval_tasks.h"

#include "cli/infer/answering.h"
#include "cli/train/signals.h"
#include "infer/task_answers.h"
#include "kernels/kernels.h"
#include "sandbox/sandbox.h"

#include <math.h>
#include <stdio.h>

typedef struct running {
    cli_context *cli;
    const eval_tasks_args *args;
    task_spec spec;
    text items; // lines of --items
    infer_scorer *scorer;
    data_chat *chat;
    const char *unit; // of progress
} running;

static bool scored(void *context, int64_t done, int64_t all)
{
    const running *r = context;
    char message[96];
    (void)snprintf(message, sizeof(message), "%.40s: %lld of %lld %s", r->spec.name,
                   (long long)done, (long long)all, r->unit);
    r->args->progress(r->args->context, (double)done / (double)all, message);
    return cli_signals_asked();
}

static status scorer_open(running *r, int64_t seq)
{
    enum { TOKENS_AT_ONCE = 4096 };
    infer_options options = r->args->options;
    options.context = seq;
    options.slots = r->args->batch > 0 ? r->args->batch : max_i64(1, TOKENS_AT_ONCE / seq);
    return infer_scorer_open(r->cli->h, r->cli->a, r->args->model->folder, &options, false,
                             &r->scorer);
}

// ---- results ------------------------------------------------------------------------------------

static status items_add(running *r, const task_items *items)
{
    if (r->args->items_path == NULL) return ST_OK;
    for (int64_t i = 0; i < items->count; i++) {
        const task_item *x = &items->items[i];
        TRY(text_add(&r->items, "{\"task\": "));
        TRY(text_add_json(&r->items, r->spec.name));
        TRY(text_add(&r->items, ", \"item\": %lld, \"loglikelihood\": [", (long long)i));
        for (int64_t k = 0; k < x->choice_count; k++) {
            TRY(text_add(&r->items, "%s%.9g", k > 0 ? ", " : "", x->choices[k].score));
        }
        TRY(text_add(&r->items,
                     "], \"prediction\": %lld, \"prediction_norm\": %lld, "
                     "\"prediction_bytes\": %lld, \"gold\": %lld}\n",
                     (long long)task_best(x, 0), (long long)task_best(x, 1),
                     (long long)task_best(x, 2), (long long)x->gold));
    }
    return ST_OK;
}

static status answer_add(running *r, const task_prompt *p, int64_t item, int64_t sample)
{
    const task_answer *x = &p->answers[sample];
    static const char *const names[] = {"extracted", "extracted_last"};
    static const char *const rights[] = {"exact_match", "exact_match_last"};
    TRY(text_add(&r->items, "{\"task\": "));
    TRY(text_add_json(&r->items, r->spec.name));
    TRY(text_add(&r->items, ", \"item\": %lld, \"sample\": %lld, \"answer\": ", (long long)item,
                 (long long)sample));
    TRY(text_add_json_bytes(&r->items, x->text, x->bytes));
    if (p->target != NULL) {
        TRY(text_add(&r->items, ", \"target\": "));
        TRY(text_add_json_bytes(&r->items, p->target, p->target_bytes));
    }
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (x->extracted[i] == NULL) continue;
        TRY(text_add(&r->items, ", \"%s\": ", names[i]));
        TRY(text_add_json(&r->items, x->extracted[i]));
        TRY(text_add(&r->items, ", \"%s\": %d", rights[i], x->is_right[i] ? 1 : 0));
    }
    if (r->spec.command != NULL) {
        TRY(text_add(&r->items, ", \"passed\": %d, \"command\": \"%s\"", x->is_passed ? 1 : 0,
                     x->ended));
    }
    return text_add(&r->items, ", \"tokens\": %lld, \"finish\": \"%s\"}\n", (long long)x->tokens,
                    x->by_length ? "length" : "stop");
}

static status answers_add(running *r, const task_prompts *prompts)
{
    if (r->args->items_path == NULL) return ST_OK;
    for (int64_t i = 0; i < prompts->count; i++) {
        for (int64_t k = 0; k < r->spec.samples; k++) {
            TRY(answer_add(r, &prompts->items[i], i, k));
        }
    }
    return ST_OK;
}

static void share_tell(cli_context *cli, const char *name, task_share s, const char *meaning)
{
    cli_print(cli, "  %-17s%.4f +- %.4f   %s\n", name, s.value, s.error, meaning);
}

static void choice_tell(const running *r, const task_result *x)
{
    cli_context *cli = r->cli;
    if (r->args->json) {
        cli_print(cli,
                  "\"acc\": %.17g, \"acc_stderr\": %.6g, \"acc_norm\": %.17g, "
                  "\"acc_norm_stderr\": %.6g, \"acc_bytes\": %.17g, \"acc_bytes_stderr\": %.6g, "
                  "\"items\": %lld}",
                  x->acc.value, x->acc.error, x->acc_norm.value, x->acc_norm.error,
                  x->acc_bytes.value, x->acc_bytes.error, (long long)x->items);
        return;
    }
    cli_print(cli, "%s, %lld items\n", r->spec.name, (long long)x->items);
    share_tell(cli, "acc", x->acc, "likeliest choice");
    share_tell(cli, "acc_norm", x->acc_norm, "likeliest for its characters");
    share_tell(cli, "acc_bytes", x->acc_bytes, "likeliest for its bytes");
}

// One result of a generation task: a line, or members of JSON.
static void mean_tell(const running *r, const char *name, task_share s, const char *meaning)
{
    if (s.value < 0.0) return;
    if (r->args->json) {
        cli_print(r->cli, "\"%s\": %.17g, \"%s_stderr\": %.6g, ", name, s.value, name, s.error);
    } else {
        share_tell(r->cli, name, s, meaning);
    }
}

static status generation_tell(const running *r, const task_result *x)
{
    const task_spec *s = &r->spec;
    cli_context *cli = r->cli;
    const bool is_tried = s->command != NULL;
    if (!r->args->json) {
        cli_print(cli, "%s, %lld items, %lld answer%s to each\n", s->name, (long long)x->items,
                  (long long)s->samples, text_plural(s->samples, "s"));
    }
    mean_tell(r, "exact_match", x->exact, "equal to the target");
    mean_tell(r, "exact_match_last", x->exact_last, "last match equal to the target");
    mean_tell(r, "passed", x->passed, "accepted by the command");
    for (int64_t i = 0; i < s->pass.count; i++) {
        char name[40];
        (void)snprintf(name, sizeof(name), "pass@%.20s", s->pass.items[i]);
        mean_tell(r, name, x->pass[i], "one of so many is right");
    }
    if (r->args->json) {
        cli_print(cli,
                  "\"items\": %lld, \"samples\": %lld, \"cut_prompts\": %lld, "
                  "\"ended_by_length\": %lld}",
                  (long long)x->items, (long long)s->samples, (long long)x->cut,
                  (long long)x->long_ends);
    } else if (x->cut > 0) {
        cli_print(cli, "  %lld prompt%s lost their front: they are longer than the context\n",
                  (long long)x->cut, text_plural(x->cut, "s"));
    }
    text missing = {.a = cli->a};
    if (is_tried) TRY(sandbox_missing(x->confined, &missing));
    if (missing.length > 0) {
        cli_warn(cli, "%s: on this machine the command %s", s->name, missing.bytes);
    }
    return ST_OK;
}

static void perplexity_tell(const running *r, const task_result *x)
{
    static const double ln2 = 0.69314718055994530942;
    const double words = exp(x->nats / (double)max_i64(1, x->words));
    const double bytes = exp(x->nats / (double)max_i64(1, x->bytes));
    const double tokens = exp(x->nats / (double)x->tokens);
    const double bits = x->nats / ln2 / (double)max_i64(1, x->bytes);
    if (r->args->json) {
        char shown[40] = "null"; // JSON has no infinity
        if (isfinite(words)) (void)snprintf(shown, sizeof(shown), "%.17g", words);
        cli_print(r->cli,
                  "\"word_perplexity\": %s, \"byte_perplexity\": %.17g, \"bits_per_byte\": %.17g, "
                  "\"token_perplexity\": %.17g, \"loglikelihood\": %.17g, \"tokens\": %lld, "
                  "\"words\": %lld, \"bytes\": %lld, \"documents\": %lld}",
                  shown, bytes, bits, tokens, -x->nats, (long long)x->tokens, (long long)x->words,
                  (long long)x->bytes, (long long)x->items);
        return;
    }
    cli_print(r->cli, "%s, %lld document%s, %lld tokens, %lld words, %lld bytes\n", r->spec.name,
              (long long)x->items, text_plural(x->items, "s"), (long long)x->tokens,
              (long long)x->words, (long long)x->bytes);
    cli_print(r->cli, "  word_perplexity  %.6g\n  byte_perplexity  %.6g\n", words, bytes);
    cli_print(r->cli, "  bits_per_byte    %.6f\n  token_perplexity %.6g\n", bits, tokens);
}

// ---- running ------------------------------------------------------------------------------------

static status choice_run(running *r, int64_t most, task_result *out)
{
    const host *h = r->cli->h;
    task_items items = {.count = 0};
    const task_watcher watcher = {.context = r, .scored = scored};
    TRY(task_read(h, r->cli->a, r->args->tokenizer, &r->spec, r->args->limit, &items));
    TRY(scorer_open(r, min_i64(most, max_i64(1, items.longest - 1))));
    TRY(task_score(r->scorer, r->cli->a, &items, &watcher, out));
    return items_add(r, &items);
}

static status answers_generate(running *r, task_prompts *prompts, const task_watcher *watcher)
{
    enum { SLOTS = 8, CHUNK_MAX = 256 };
    const eval_tasks_args *args = r->args;
    cli_ends ends;
    task_model m = {.t = args->tokenizer};
    infer_options options = args->options;
    options.context = prompts->longest + r->spec.max_tokens;
    options.chunk = min_i64(prompts->longest, CHUNK_MAX);
    options.slots =
        min_i64(args->batch > 0 ? args->batch : SLOTS, prompts->count * r->spec.samples);
    TRY(cli_ends_find(r->cli, args->model, args->tokenizer, r->chat, &ends));
    m.ends = ends.ids;
    m.end_count = ends.count;
    TRY(cli_infer_open(r->cli, args->model, &options, &m.g));
    const status st = task_generate(&m, r->cli->a, &r->spec, prompts, watcher);
    infer_close(m.g);
    return st;
}

static status generation_run(running *r, task_result *out)
{
    const eval_tasks_args *args = r->args;
    const host *h = r->cli->h;
    task_prompts prompts = {.count = 0};
    const task_watcher watcher = {.context = r, .scored = scored};
    TRY(task_grade_check(h, r->cli->a, &r->spec));
    if (args->template_name != NULL && r->chat == NULL) {
        TRY(cli_chat_open(r->cli, args->model, args->tokenizer_name, args->template_name,
                          args->tokenizer, &r->chat));
    }
    const int64_t context = args->seq > 0 ? args->seq : args->model->spec.context;
    TRY(task_prompts_read(h, r->cli->a, args->tokenizer, &r->spec, r->chat, context, args->limit,
                          &prompts));
    r->unit = "answers";
    TRY(answers_generate(r, &prompts, &watcher));
    r->unit = "programs";
    TRY(task_grade(h, r->cli->a, &r->spec, &prompts, kern_core_count(), &watcher, out));
    return answers_add(r, &prompts);
}

static status kind_run(running *r, task_result *out)
{
    const eval_tasks_args *args = r->args;
    const int64_t most = args->seq > 0 ? args->seq : args->model->spec.context;
    r->unit = "choices";
    if (r->spec.kind == TASK_KIND_CHOICE) return choice_run(r, most, out);
    if (r->spec.kind == TASK_KIND_GENERATION) return generation_run(r, out);
    TRY(scorer_open(r, most));
    return task_perplexity(r->scorer, r->cli->h, r->cli->a, args->tokenizer, &r->spec, args->limit,
                           out);
}

static status task_run(running *r, const char *path, bool is_first)
{
    const eval_tasks_args *args = r->args;
    task_result result = {.items = 0};
    r->spec = (task_spec){.file = NULL};
    TRY(task_load(r->cli->h, r->cli->a, path, &r->spec));
    const status st = kind_run(r, &result);
    args->progress_end(args->context);
    infer_scorer_close(r->scorer);
    r->scorer = NULL;
    TRY(st);
    if (args->json) {
        text name = {.a = r->cli->a};
        TRY(text_add_json(&name, r->spec.name));
        cli_print(r->cli, "%s{\"task\": %s, ", is_first ? "{\"tasks\": [" : ", ", name.bytes);
    }
    if (r->spec.kind == TASK_KIND_GENERATION) return generation_tell(r, &result);
    if (r->spec.kind == TASK_KIND_CHOICE) {
        choice_tell(r, &result);
    } else {
        perplexity_tell(r, &result);
    }
    return ST_OK;
}

static status tasks_run(running *r)
{
    cli_context *cli = r->cli;
    const eval_tasks_args *args = r->args;
    for (int64_t i = 0; i < args->file_count; i++) TRY(task_run(r, args->files[i], i == 0));
    if (args->json) cli_print(cli, "]}\n");
    if (args->items_path == NULL) return ST_OK;
    return host_write_all(cli->h, args->items_path, r->items.length > 0 ? r->items.bytes : "",
                          r->items.length);
}

status eval_tasks(cli_context *cli, const eval_tasks_args *args)
{
    running r = {.cli = cli, .args = args, .items = {.a = cli->a}};
    const status st = tasks_run(&r);
    data_chat_close(r.chat);
    return st;
}
