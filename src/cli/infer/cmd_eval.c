// `eval`: measures a model's loss on given text, or its accuracy in choosing endings.
#include "cli/commands.h"
#include "cli/infer/device.h"
#include "cli/infer/eval_tasks.h"
#include "cli/model_folder.h"
#include "cli/train/signals.h"
#include "config/run_config.h"
#include "infer/hellaswag.h"
#include "infer/windows.h"

#include <math.h>
#include <string.h>

typedef struct eval_flags {
    option_list data, task;
    const char *tokenizer, *adapter, *items, *template_name;
    int64_t seq, stride, limit, batch, cache, threads;
    int32_t packing, on_error, precision;
    bool strict, json;
} eval_flags;

// FILES: task files.
typedef enum eval_task { TASK_LOSS, TASK_HELLASWAG, TASK_FILES } eval_task;
typedef enum eval_packing { PACKING_AUTO, PACKING_MASKED, PACKING_PLAIN } eval_packing;

#define AT(field) (int64_t) offsetof(eval_flags, field)
static const option rows[] = {
    {.key = "data",
     .kind = OPTION_LIST,
     .offset = AT(data),
     .help = "file to evaluate on: text or JSON lines with text, also as .gz or .zst, or tokens; "
             "further files may follow as arguments"},
    {.key = "task",
     .kind = OPTION_LIST,
     .offset = AT(task),
     .default_text = "loss",
     .help = "task: loss of all tokens, hellaswag (accuracy in choosing endings), or task files; "
             "further files may follow as arguments"},
    {.key = "items",
     .kind = OPTION_TEXT,
     .offset = AT(items),
     .help = "JSON-lines file for the scores of each item of the task files"},
    {.key = "template",
     .kind = OPTION_TEXT,
     .offset = AT(template_name),
     .help = "chat template for generation tasks: each prompt is a user's message; auto is that of "
             "the run or of the tokenizer's folder, else chatml, llama3 or a file; without it "
             "prompts are used unchanged",
     .also = "chat, chat_template, apply_chat_template"},
    {.key = "limit",
     .kind = OPTION_INT,
     .offset = AT(limit),
     .default_text = "0",
     .max = OPTION_NO_MAX,
     .help =
         "number of tokens (for hellaswag: examples) after which the evaluation stops; 0 is all"},
    {.key = "seq",
     .kind = OPTION_INT,
     .offset = AT(seq),
     .default_text = "0",
     .max = 1 << 24,
     .help = "tokens of a window; 0 is a run's train.seq, or the model's context for other folders",
     .also = "context, ctx, window"},
    {.key = "stride",
     .kind = OPTION_INT,
     .offset = AT(stride),
     .default_text = "0",
     .max = 1 << 24,
     .help = "tokens from one window to the next; with less than a window, windows overlap and "
             "every token has more context; 0 is the whole window"},
    {.key = "packing",
     .kind = OPTION_CHOICE,
     .offset = AT(packing),
     .default_text = "auto",
     .choices = "auto, masked, plain",
     .help = "attention between documents: with masked, documents do not attend to each other and "
             "none predicts the next one's first token; with plain, they form one text; auto is "
             "the run's setting, and masked for other folders"},
    {.key = "on-error",
     .kind = OPTION_CHOICE,
     .offset = AT(on_error),
     .default_text = "stop",
     .choices = "stop, skip",
     .help = "a line of JSON lines without a text: stop is an error, skip leaves it out and "
             "tells how many were"},
    {.key = "batch",
     .kind = OPTION_INT,
     .offset = AT(batch),
     .default_text = "0",
     .max = 4096,
     .help = "number of windows or endings at once; 0 is about 4096 tokens"},
    {.key = "cache",
     .kind = OPTION_INT,
     .offset = AT(cache),
     .default_text = "0",
     .max = INT64_C(1) << 34,
     .help = "of tasks that generate: tokens in the cache of all answers together, in pages of 16 "
             "that equal prompts share; 0 is the longest answer for each of --batch",
     .also = "kv_cache"},
    CLI_MODEL_ROWS(eval_flags, "weights and activations"),
    {.key = "strict",
     .kind = OPTION_BOOL,
     .offset = AT(strict),
     .default_text = "false",
     .help = "strict mode: the same bits for any --batch and --threads; on for a run with "
             "determinism: strict"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints one JSON object instead of the lines"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct evaluation {
    cli_context *cli;
    const eval_flags *f;
    run_config *keys; // of the device
    cli_model model;
    data_tokenizer *tokenizer; // NULL: only token files
    option_list paths;
    eval_task task;
    infer_scorer *scorer;
    infer_windows *windows;
    infer_score score;
    int64_t begin_ns, shown_ns;
} evaluation;

static double seconds_of(const evaluation *v)
{
    return (double)(v->cli->h->api->monotonic_ns(v->cli->h) - v->begin_ns) / 1e9;
}

// ---- progress -----------------------------------------------------------------------------------

// Rewrites a line, on a terminal only.
static void progress(evaluation *v, double share, const char *message)
{
    enum { INTERVAL_NS = 100000000 };
    const int64_t now = v->cli->h->api->monotonic_ns(v->cli->h);
    if (!v->cli->live || v->f->json || now - v->shown_ns < INTERVAL_NS) return;
    v->shown_ns = now;
    cli_print(v->cli, "\r%3.0f%%  %.60s  %.0f s\033[K", 100.0 * share, message, seconds_of(v));
    cli_push(v->cli);
}

static void progress_end(const evaluation *v)
{
    if (v->shown_ns != 0) cli_print(v->cli, "\r\033[K");
}

// ---- inputs -------------------------------------------------------------------------------------

static status task_find(evaluation *v)
{
    const option_list t = v->f->task;
    const bool is_loss = t.count == 0 || (t.count == 1 && strcmp(t.items[0], "loss") == 0);
    const bool is_hellaswag = t.count == 1 && strcmp(t.items[0], "hellaswag") == 0;
    v->task = is_loss ? TASK_LOSS : is_hellaswag ? TASK_HELLASWAG : TASK_FILES;
    for (int64_t i = 0; i < t.count && v->task == TASK_FILES; i++) {
        if (strcmp(t.items[i], "loss") != 0 && strcmp(t.items[i], "hellaswag") != 0) continue;
        return fail(ST_USAGE, "--task %s stands alone; give task files without it", t.items[i]);
    }
    if (v->task == TASK_FILES && v->f->data.count > 0) {
        return fail(ST_USAGE, "task files name their own data; leave --data out");
    }
    if (v->task == TASK_FILES && (v->f->stride > 0 || v->f->packing != PACKING_AUTO)) {
        return fail(ST_USAGE, "--stride and --packing apply to --task loss only");
    }
    if (v->task != TASK_FILES && v->f->cache > 0) {
        return fail(ST_USAGE, "--cache applies to task files that generate");
    }
    if (v->task == TASK_FILES || (v->f->items == NULL && v->f->template_name == NULL)) return ST_OK;
    return fail(ST_USAGE, "--%s applies to task files", v->f->items != NULL ? "items" : "template");
}

// The paths of --data or --task and of the arguments after the model.
static status paths_find(evaluation *v, const cli_call *call)
{
    const option_list given = v->task == TASK_FILES ? v->f->task : v->f->data;
    const char **items = NULL;
    const int64_t count = given.count + call->operand_count - 1;
    if (given.count == 0) return fail(ST_USAGE, "eval needs --data FILE, or --task FILE");
    TRY(arena_new(v->cli->a, count, &items));
    for (int64_t i = 0; i < count; i++) {
        items[i] = i < given.count ? given.items[i] : call->operands[1 + i - given.count];
    }
    v->paths = (option_list){.items = items, .count = count};
    return ST_OK;
}

// The model's tokenizer; a model without one can be evaluated on token files.
static status tokenizer_find(evaluation *v)
{
    if (v->f->tokenizer == NULL && v->model.tokenizer == NULL && v->task == TASK_LOSS) {
        return ST_OK;
    }
    return cli_tokenizer_open(v->cli, &v->model, v->f->tokenizer, &v->tokenizer);
}

static int64_t batch_of(const evaluation *v, int64_t seq)
{
    enum { TOKENS_AT_ONCE = 4096 };
    return v->f->batch > 0 ? v->f->batch : max_i64(1, TOKENS_AT_ONCE / seq);
}

static infer_options options_of(const evaluation *v)
{
    infer_options options = {.threads = (int)v->f->threads,
                             .compute = cli_model_type(&v->model, v->f->precision),
                             .cache = v->f->cache,
                             .strict = v->f->strict,
                             .adapter = v->f->adapter};
    cli_device_set(v->keys, v->model.strict, &options);
    return options;
}

static status scorer_open(evaluation *v, int64_t seq, bool documents)
{
    infer_options options = options_of(v);
    options.context = seq;
    options.slots = batch_of(v, seq);
    return infer_scorer_open(v->cli->h, v->cli->a, v->model.folder, &options, documents,
                             &v->scorer);
}

// ---- loss ---------------------------------------------------------------------------------------

static status loss_run(evaluation *v)
{
    for (;;) {
        int64_t filled = 0;
        char message[64];
        TRY(infer_windows_next(v->windows, infer_scorer_rows(v->scorer), &filled));
        if (filled == 0) return ST_OK;
        TRY(infer_scorer_run(v->scorer, filled, &v->score, NULL));
        const double mean = exact_value(&v->score.nats) / (double)max_i64(1, v->score.tokens);
        (void)snprintf(message, sizeof(message), "loss %.4f  %lld tokens", mean,
                       (long long)v->score.tokens);
        progress(v, infer_windows_share(v->windows), message);
        if (cli_signals_asked()) {
            return fail(ST_STOPPED, "after %lld tokens", (long long)v->score.tokens);
        }
    }
}

// A JSON number; JSON has no infinity.
static const char *json_number(double x, char buffer[40])
{
    (void)snprintf(buffer, 40, isfinite(x) ? "%.17g" : "null", x);
    return buffer;
}

static status loss_tell(const evaluation *v, int64_t seq, int64_t stride)
{
    const infer_windows_count count = infer_windows_counted(v->windows);
    char numbers[3][40];
    ASSERT(count.tokens == v->score.tokens);
    if (count.tokens == 0) {
        return fail(ST_DATA, "%s: no token can be predicted from another", v->paths.items[0]);
    }
    const double nats = exact_value(&v->score.nats), loss = nats / (double)count.tokens;
    if (!isfinite(loss)) return fail(ST_NUMERICS, "the loss is not finite");
    const double per_byte =
        count.bytes > 0 ? nats / 0.69314718055994530942 / (double)count.bytes : (double)NAN;
    const double seconds = seconds_of(v);
    if (v->f->json) {
        cli_print(v->cli,
                  "{\"loss\": %s, \"perplexity\": %s, \"bits_per_byte\": %s, \"tokens\": %lld, "
                  "\"bytes\": %lld, \"documents\": %lld, \"seq\": %lld, \"stride\": %lld, "
                  "\"skipped\": %lld, \"precision\": \"%s\", \"strict\": %s, \"batch\": %lld, "
                  "\"seconds\": %.6g, \"tokens_per_s\": %.6g}\n",
                  json_number(loss, numbers[0]), json_number(exp(loss), numbers[1]),
                  json_number(per_byte, numbers[2]), (long long)count.tokens,
                  (long long)count.bytes, (long long)count.documents, (long long)seq,
                  (long long)stride, (long long)count.skipped,
                  dtype_name(cli_model_type(&v->model, v->f->precision)),
                  options_of(v).strict ? "true" : "false", (long long)batch_of(v, seq), seconds,
                  (double)count.tokens / fmax(seconds, 1e-9));
        return ST_OK;
    }
    cli_print(v->cli, "loss           %.6f nats per token\n", loss);
    cli_print(v->cli, "perplexity     %.6g\n", exp(loss));
    if (count.bytes > 0) cli_print(v->cli, "bits per byte  %.6f\n", per_byte);
    cli_print(v->cli, "over           %lld tokens, %lld bytes, %lld document%s, windows of %lld\n",
              (long long)count.tokens, (long long)count.bytes, (long long)count.documents,
              text_plural(count.documents, "s"), (long long)seq);
    if (count.skipped > 0) {
        cli_print(v->cli, "skipped        %lld line%s without a text\n", (long long)count.skipped,
                  text_plural(count.skipped, "s"));
    }
    return ST_OK;
}

static status loss_eval(evaluation *v)
{
    const int64_t usual = v->model.seq > 0 ? v->model.seq : v->model.spec.context;
    const int64_t seq = v->f->seq > 0 ? v->f->seq : usual;
    const int64_t stride = v->f->stride > 0 ? v->f->stride : seq;
    const bool crosses =
        v->f->packing == PACKING_AUTO ? v->model.crosses_texts : v->f->packing == PACKING_PLAIN;
    if (stride > seq) {
        return fail(ST_USAGE, "--stride %lld skips tokens between windows of %lld",
                    (long long)stride, (long long)seq);
    }
    const infer_windows_spec spec = {.paths = v->paths.items,
                                     .path_count = v->paths.count,
                                     .tokenizer = v->tokenizer,
                                     .vocab = v->model.spec.vocab,
                                     .seq = seq,
                                     .stride = stride,
                                     .limit = v->f->limit,
                                     .crosses_texts = crosses,
                                     .skips_bad_lines = v->f->on_error == 1};
    TRY(infer_windows_open(v->cli->h, v->cli->a, &spec, &v->windows));
    TRY(scorer_open(v, seq, !crosses));
    const status st = loss_run(v);
    progress_end(v);
    TRY(st);
    return loss_tell(v, seq, stride);
}

// ---- tasks --------------------------------------------------------------------------------------

static bool task_scored(void *context, int64_t done, int64_t all)
{
    evaluation *v = context;
    char message[64];
    (void)snprintf(message, sizeof(message), "%lld of %lld endings", (long long)done,
                   (long long)all);
    progress(v, (double)done / (double)all, message);
    return cli_signals_asked();
}

static void task_tell(const evaluation *v, const hellaswag_result *r)
{
    if (v->f->json) {
        cli_print(v->cli,
                  "{\"task\": \"hellaswag\", \"accuracy\": %.17g, \"accuracy_norm\": %.17g, "
                  "\"stderr\": %.6g, \"stderr_norm\": %.6g, \"count\": %lld, \"seconds\": %.6g}\n",
                  r->accuracy, r->accuracy_norm, r->error, r->error_norm, (long long)r->count,
                  seconds_of(v));
        return;
    }
    cli_print(v->cli, "accuracy       %.4f +- %.4f   likeliest ending\n", r->accuracy, r->error);
    cli_print(v->cli, "accuracy_norm  %.4f +- %.4f   likeliest for its bytes\n", r->accuracy_norm,
              r->error_norm);
    cli_print(v->cli, "over           %lld examples\n", (long long)r->count);
}

static status task_eval(evaluation *v)
{
    hellaswag_list list = {0};
    hellaswag_result result = {0};
    for (int64_t i = 0; i < v->paths.count; i++) {
        TRY(hellaswag_read(v->cli->h, v->cli->a, v->tokenizer, v->paths.items[i], v->f->limit,
                           &list));
    }
    if (list.count == 0) return fail(ST_DATA, "%s holds no example", v->paths.items[0]);
    const int64_t most = v->f->seq > 0 ? v->f->seq : v->model.spec.context;
    TRY(scorer_open(v, min_i64(most, max_i64(1, list.longest - 1)), false));
    const hellaswag_watcher watcher = {.context = v, .scored = task_scored};
    const status st = hellaswag_score(v->scorer, v->cli->a, &list, &watcher, &result);
    progress_end(v);
    TRY(st);
    task_tell(v, &result);
    return ST_OK;
}

static void files_progress(void *context, double share, const char *message)
{
    progress(context, share, message);
}

static void files_progress_end(void *context)
{
    evaluation *v = context;
    progress_end(v);
    v->shown_ns = 0;
}

static status files_eval(evaluation *v)
{
    const eval_tasks_args args = {.model = &v->model,
                                  .tokenizer = v->tokenizer,
                                  .files = v->paths.items,
                                  .file_count = v->paths.count,
                                  .seq = v->f->seq,
                                  .limit = v->f->limit,
                                  .batch = v->f->batch,
                                  .options = options_of(v),
                                  .items_path = v->f->items,
                                  .template_name = v->f->template_name,
                                  .tokenizer_name = v->f->tokenizer,
                                  .json = v->f->json,
                                  .context = v,
                                  .progress = files_progress,
                                  .progress_end = files_progress_end};
    return eval_tasks(v->cli, &args);
}

// ---- the command --------------------------------------------------------------------------------

static status evaluate(evaluation *v, const cli_call *call)
{
    TRY(cli_device_find(v->cli, call, "eval", &v->keys));
    TRY(task_find(v));
    if (v->f->on_error == 1 && v->task != TASK_LOSS) {
        return fail(ST_USAGE, "--on-error skip applies to --task loss only");
    }
    TRY(paths_find(v, call));
    cli_warn_threads(v->cli, v->f->threads);
    TRY(cli_model_find(v->cli, call->operands[0], &v->model));
    TRY(tokenizer_find(v));
    exact_zero(&v->score.nats);
    v->begin_ns = v->cli->h->api->monotonic_ns(v->cli->h);
    if (v->task == TASK_FILES) return files_eval(v);
    return v->task == TASK_HELLASWAG ? task_eval(v) : loss_eval(v);
}

static status run(cli_context *cli, const cli_call *call)
{
    evaluation v = {.cli = cli, .f = call->flags};
    cli_signals_begin_quiet();
    const status st = evaluate(&v, call);
    infer_windows_close(v.windows);
    infer_scorer_close(v.scorer);
    data_tokenizer_close(v.tokenizer);
    if (st == ST_STOPPED) {
        (void)fprintf(cli->err, "stopped  %s; there is no result\n", error_last()->text);
        cli_push(cli);
        cli_signals_raise();
    }
    cli_signals_end();
    return st;
}

const cli_command cli_command_eval = {
    .name = "eval",
    .summary = "measure a model's loss on text, or its accuracy on a task",
    .synopsis = "RUN|CHECKPOINT|FOLDER [--task hellaswag] --data FILE [FILE ...] [--limit N] "
                "[--seq N] [--stride N] [--batch N] [--json] | RUN|CHECKPOINT|FOLDER --task "
                "TASK.yaml [TASK.yaml ...] [--items FILE] [--json] [kernels.device=cuda]",
    .about =
        "For a run, the command takes its newest checkpoint. FOLDER is a Hugging Face folder. "
        "The command reads files as training does: each document, then the end-of-text token, "
        "cut into windows, without a token before a text. loss is the mean over all tokens "
        "that have one before them in their window, in nats; perplexity is exp(loss); "
        "bits_per_byte is the sum of the losses, in bits, divided by the UTF-8 bytes of these "
        "tokens as they decode (special tokens have none). hellaswag reads JSON lines with "
        "ctx, endings and label, or six lines for each example; accuracy chooses the ending "
        "with the highest sum of log-probabilities, accuracy_norm divides that sum by the "
        "ending's bytes. A task file (YAML) names data, a template of the context and the members "
        "that hold the choices, or how generated answers are compared or tried; acc, acc_norm, "
        "exact_match and the perplexities are those of lm-evaluation-harness. kernels.device=cuda "
        "measures on an NVIDIA GPU, where this has not run yet; kernels.graphs is the "
        "only other key. A signal ends the command without a result.",
    .examples = "  trireme eval demo/run --data demo/text.txt --limit 100000\n"
                "  trireme eval ~/models/gpt2 --data wiki.txt --stride 512 --json\n"
                "  trireme eval ~/models/gpt2 --task hellaswag --data hellaswag_val.jsonl\n"
                "  trireme eval demo/run --task arc.yaml wikitext.yaml --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(eval_flags),
    .operand_min = 1,
    .operand_max = -1,
    .takes_keys = true,
    .run = run,
};
