// Runs task files one after the other; each opens the model for its own longest text.
#include "cli/infer/eval_tasks.h"

#include "cli/train/signals.h"

#include <math.h>
#include <stdio.h>

typedef struct running {
    cli_context *cli;
    const eval_tasks_args *args;
    task_spec spec;
    text items; // lines of --items
    infer_scorer *scorer;
} running;

static bool scored(void *context, int64_t done, int64_t all)
{
    const running *r = context;
    char message[96];
    (void)snprintf(message, sizeof(message), "%.40s: %lld of %lld choices", r->spec.name,
                   (long long)done, (long long)all);
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

static status task_run(running *r, const char *path, bool is_first)
{
    const eval_tasks_args *args = r->args;
    task_result result = {.items = 0};
    r->spec = (task_spec){.file = NULL};
    TRY(task_load(r->cli->h, r->cli->a, path, &r->spec));
    const int64_t most = args->seq > 0 ? args->seq : args->model->spec.context;
    status st = ST_OK;
    if (r->spec.kind == TASK_KIND_CHOICE) {
        st = choice_run(r, most, &result);
    } else {
        st = scorer_open(r, most);
        if (st == ST_OK) {
            st = task_perplexity(r->scorer, r->cli->h, r->cli->a, args->tokenizer, &r->spec,
                                 args->limit, &result);
        }
    }
    args->progress_end(args->context);
    infer_scorer_close(r->scorer);
    r->scorer = NULL;
    TRY(st);
    if (args->json) {
        text name = {.a = r->cli->a};
        TRY(text_add_json(&name, r->spec.name));
        cli_print(r->cli, "%s{\"task\": %s, ", is_first ? "{\"tasks\": [" : ", ", name.bytes);
    }
    if (r->spec.kind == TASK_KIND_CHOICE) {
        choice_tell(r, &result);
    } else {
        perplexity_tell(r, &result);
    }
    return ST_OK;
}

status eval_tasks(cli_context *cli, const eval_tasks_args *args)
{
    running r = {.cli = cli, .args = args, .items = {.a = cli->a}};
    for (int64_t i = 0; i < args->file_count; i++) TRY(task_run(&r, args->files[i], i == 0));
    if (args->json) cli_print(cli, "]}\n");
    if (args->items_path == NULL) return ST_OK;
    return host_write_all(cli->h, args->items_path, r.items.length > 0 ? r.items.bytes : "",
                          r.items.length);
}
