// Runs task files one after the other; each opens the model for its own longest text.
#include "cli/infer/eval_tasks.h"

#include "cli/infer/answering.h"
#include "cli/train/signals.h"
#include "infer/task_run.h"
#include "kernels/kernels.h"
#include "sandbox/sandbox.h"

#include <math.h>
#include <stdio.h>

typedef struct running {
    cli_context *cli;
    const eval_tasks_args *args;
    task_spec spec;
    text items; // lines of --items
    data_chat *chat;
} running;

static bool scored(void *context, const char *unit, int64_t done, int64_t all)
{
    const running *r = context;
    char message[96];
    (void)snprintf(message, sizeof(message), "%.40s: %lld of %lld %s", r->spec.name,
                   (long long)done, (long long)all, unit);
    if (all > 0) r->args->progress(r->args->context, (double)done / (double)all, message);
    return cli_signals_asked();
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
    if (r->spec.match.count > 0) {
        TRY(text_add(&r->items, ", \"matched\": %d", x->is_matched ? 1 : 0));
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

static status counts_tell(const running *r, const task_result *x)
{
    cli_context *cli = r->cli;
    const task_spec *s = &r->spec;
    if (s->kind == TASK_KIND_CHOICE) {
        cli_print(cli, "%s, %lld items\n", s->name, (long long)x->items);
    } else if (s->kind == TASK_KIND_PERPLEXITY) {
        cli_print(cli, "%s, %lld document%s, %lld tokens, %lld words, %lld bytes\n", s->name,
                  (long long)x->items, text_plural(x->items, "s"), (long long)x->tokens,
                  (long long)x->words, (long long)x->bytes);
    } else {
        cli_print(cli, "%s, %lld items, %lld answer%s to each\n", s->name, (long long)x->items,
                  (long long)s->samples, text_plural(s->samples, "s"));
        if (x->cut > 0) {
            cli_print(cli, "  %lld prompt%s lost their front: they are longer than the context\n",
                      (long long)x->cut, text_plural(x->cut, "s"));
        }
    }
    text missing = {.a = cli->a};
    if (s->command != NULL) TRY(sandbox_missing(x->confined, &missing));
    if (missing.length > 0) {
        cli_warn(cli, "%s: on this machine the command %s", s->name, missing.bytes);
    }
    return ST_OK;
}

static void table_tell(const running *r, const task_metric *metrics, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const task_metric *m = &metrics[i];
        if (m->error < 0.0) {
            cli_print(r->cli, "  %-17s%.6g\n", m->name, m->value);
        } else {
            cli_print(r->cli, "  %-17s%.4f +- %.4f   %s\n", m->name, m->value, m->error,
                      m->meaning);
        }
    }
}

static void json_tell(const running *r, const task_result *x, const task_metric *metrics,
                      int64_t count)
{
    cli_context *cli = r->cli;
    for (int64_t i = 0; i < count; i++) {
        const task_metric *m = &metrics[i];
        char shown[40] = "null"; // JSON has no infinity
        if (isfinite(m->value)) (void)snprintf(shown, sizeof(shown), "%.17g", m->value);
        cli_print(cli, "\"%s\": %s, ", m->name, shown);
        if (m->error >= 0.0) cli_print(cli, "\"%s_stderr\": %.6g, ", m->name, m->error);
    }
    if (r->spec.kind == TASK_KIND_CHOICE) {
        cli_print(cli, "\"items\": %lld}", (long long)x->items);
    } else if (r->spec.kind == TASK_KIND_PERPLEXITY) {
        cli_print(cli,
                  "\"loglikelihood\": %.17g, \"tokens\": %lld, \"words\": %lld, "
                  "\"bytes\": %lld, \"documents\": %lld}",
                  -x->nats, (long long)x->tokens, (long long)x->words, (long long)x->bytes,
                  (long long)x->items);
    } else {
        cli_print(cli,
                  "\"items\": %lld, \"samples\": %lld, \"cut_prompts\": %lld, "
                  "\"ended_by_length\": %lld}",
                  (long long)x->items, (long long)r->spec.samples, (long long)x->cut,
                  (long long)x->long_ends);
    }
}

static status result_tell(running *r, const task_result *x, bool is_first)
{
    task_metric metrics[TASK_METRICS_MAX];
    const int64_t count = task_metrics(&r->spec, x, metrics);
    text name = {.a = r->cli->a};
    if (!r->args->json) {
        TRY(counts_tell(r, x));
        table_tell(r, metrics, count);
        return ST_OK;
    }
    TRY(text_add_json(&name, r->spec.name));
    cli_print(r->cli, "%s{\"task\": %s, ", is_first ? "{\"tasks\": [" : ", ", name.bytes);
    json_tell(r, x, metrics, count);
    return ST_OK;
}

// ---- running ------------------------------------------------------------------------------------

static status one_run(running *r, const char *path, bool is_first)
{
    const eval_tasks_args *args = r->args;
    const task_watcher watcher = {.context = r, .scored = scored};
    task_outcome outcome;
    r->spec = (task_spec){.file = NULL};
    TRY(task_load(r->cli->h, r->cli->a, path, &r->spec));
    if (args->template_name != NULL && r->chat == NULL) {
        TRY(cli_chat_open(r->cli, args->model, args->tokenizer_name, args->template_name,
                          args->tokenizer, &r->chat));
    }
    const task_run_args of_task = {.h = r->cli->h,
                                   .folder = args->model->folder,
                                   .spec = &args->model->spec,
                                   .tokenizer = args->tokenizer,
                                   .chat = r->chat,
                                   .seq = args->seq,
                                   .limit = args->limit,
                                   .batch = args->batch,
                                   .options = args->options,
                                   .processors = kern_core_count(),
                                   .watcher = &watcher};
    const status st = task_run(&of_task, r->cli->a, &r->spec, &outcome);
    args->progress_end(args->context);
    TRY(st);
    TRY(items_add(r, &outcome.items));
    TRY(answers_add(r, &outcome.prompts));
    return result_tell(r, &outcome.result, is_first);
}

static status tasks_run(running *r)
{
    cli_context *cli = r->cli;
    const eval_tasks_args *args = r->args;
    for (int64_t i = 0; i < args->file_count; i++) TRY(one_run(r, args->files[i], i == 0));
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
