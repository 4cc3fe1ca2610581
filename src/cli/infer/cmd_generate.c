// `generate`: text from a trained model, token by token.
//
// The command continues several prompts at once and prints the results in the order of the prompts:
// the first unfinished one streams, and the text of later ones waits.
#include "cli/commands.h"
#include "cli/infer/answering.h"
#include "cli/infer/device.h"
#include "cli/infer/prompt_list.h"
#include "cli/json_text.h"
#include "cli/model_folder.h"
#include "cli/train/signals.h"
#include "infer/continuation.h"
#include "infer/infer.h"

#include <string.h>

typedef struct generate_flags {
    const char *prompt, *prompts, *tokenizer, *adapter, *template_name, *system;
    option_list stop;
    int64_t batch, cache, max_tokens, top_k, seed, threads;
    double temperature, top_p, min_p;
    int32_t precision; // 0: the run's
    bool strict, ignore_eot, json;
} generate_flags;

#define AT(field) (int64_t) offsetof(generate_flags, field)
static const option rows[] = {
    {.key = "prompt",
     .kind = OPTION_TEXT,
     .offset = AT(prompt),
     .help = "text to continue; - is standard input"},
    {.key = "prompts",
     .kind = OPTION_TEXT,
     .offset = AT(prompts),
     .help = "file of prompts, or - for standard input: one per line, or JSON lines with "
             "{\"prompt\": ...} (recognized by the ending .jsonl or the first line); empty lines "
             "are skipped"},
    {.key = "template",
     .kind = OPTION_TEXT,
     .offset = AT(template_name),
     .help = "chat template: each prompt is a user's message, and the model answers; auto is that "
             "of the run or of the tokenizer's folder, else chatml, llama3 or a file; without it "
             "prompts are used unchanged",
     .also = "chat, chat_template"},
    {.key = "system",
     .kind = OPTION_TEXT,
     .offset = AT(system),
     .help = "system message before each prompt, with --template"},
    {.key = "batch",
     .kind = OPTION_INT,
     .offset = AT(batch),
     .default_text = "8",
     .min = 1,
     .max = 1024,
     .help = "number of prompts that are continued at once"},
    CLI_CACHE_ROW(generate_flags, "the longest text"),
    {.key = "max-tokens",
     .kind = OPTION_INT,
     .offset = AT(max_tokens),
     .default_text = "0",
     .max = 1 << 24,
     .help = "largest number of new tokens; 0 is 200, or the rest of the model's context",
     .also = "n, num_tokens, length, max_new_tokens"},
    {.key = "temperature",
     .kind = OPTION_REAL,
     .offset = AT(temperature),
     .default_text = "0.8",
     .max = 100,
     .help = "sampling temperature: 0 takes the likeliest token, 1 samples the model's "
             "distribution, and higher values flatten it",
     .also = "temp, t"},
    {.key = "top-k",
     .kind = OPTION_INT,
     .offset = AT(top_k),
     .default_text = "0",
     .max = 1 << 24,
     .help = "number of likeliest tokens to sample from; 0 is all"},
    {.key = "top-p",
     .kind = OPTION_REAL,
     .offset = AT(top_p),
     .default_text = "1",
     .max = 1,
     .help = "total probability of the likeliest tokens to sample from; 1 is all"},
    {.key = "min-p",
     .kind = OPTION_REAL,
     .offset = AT(min_p),
     .default_text = "0",
     .max = 1,
     .help = "smallest probability of a sampled token, as a share of the likeliest token's"},
    {.key = "seed",
     .kind = OPTION_INT,
     .offset = AT(seed),
     .default_text = "0",
     .max = 9007199254740992.0,
     .help = "seed of sampling; the same seed gives the same text; 0 takes a new seed each time"},
    {.key = "stop",
     .kind = OPTION_LIST,
     .offset = AT(stop),
     .help = "text before which the output ends; may be given several times"},
    CLI_MODEL_ROWS(generate_flags, "weights, cache and activations"),
    {.key = "strict",
     .kind = OPTION_BOOL,
     .offset = AT(strict),
     .default_text = "false",
     .help = "strict mode: a prompt gives the same bits alone and with others, with any number of "
             "threads; on for a run with determinism: strict"},
    {.key = "ignore-eot",
     .kind = OPTION_BOOL,
     .offset = AT(ignore_eot),
     .default_text = "false",
     .help = "continues after the end of a document"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "prints a JSON object for each prompt instead of text"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// The reason why a text ended; NOT_YET also if a signal ended the command.
typedef enum finish { FINISH_NOT_YET, FINISH_LENGTH, FINISH_STOP, FINISH_EOS } finish;
static const char *const finish_names[] = {"interrupted", "length", "stop", "eos"};

enum { TOKENS_DEFAULT = 200, CHUNK_MAX = 256 };

typedef struct growth { // state of one prompt
    data_ids prompt, ids;
    infer_continuation grown;
    bool prompt_shown;
    int64_t shown; // bytes of the continuation that were printed
    int64_t begin_ns, end_ns;
    finish why;
} growth;

typedef struct generation {
    cli_context *cli;
    const generate_flags *f;
    run_config *keys; // of the device
    cli_model model;
    data_tokenizer *tokenizer;
    data_chat *chat; // NULL: prompts are used unchanged
    infer *g;
    prompt_list list;
    growth *growths;       // [prompt]
    infer_prompt *prompts; // [prompt]
    infer_options options; // of the model as it is opened
    infer_sampling sampling;
    cli_ends ends; // tokens that end a text
    int64_t told;  // number of prompts that are printed completely
} generation;

static bool ends_text(const generation *v, int32_t id)
{
    for (int64_t i = 0; i < v->ends.count; i++) {
        if (v->ends.ids[i] == id) return true;
    }
    return false;
}

// ---- the prompts --------------------------------------------------------------------------------

static status flags_check(const generate_flags *f)
{
    if ((f->prompt == NULL) == (f->prompts == NULL)) {
        return fail(ST_USAGE, f->prompt == NULL ? "no prompt: give --prompt TEXT or --prompts FILE"
                                                : "--prompt and --prompts exclude each other");
    }
    if (f->system != NULL && f->template_name == NULL) {
        return fail(ST_USAGE, "--system needs --template");
    }
    if (f->top_p <= 0.0) return fail(ST_USAGE, "--top-p 0 leaves no token; 1 is all of them");
    for (int64_t i = 0; i < f->stop.count; i++) {
        const size_t bytes = strlen(f->stop.items[i]);
        if (bytes > 0 && bytes <= INFER_STOP_BYTES_MAX) continue;
        return fail(ST_USAGE, "--stop has %zu bytes; expected 1 to %d", bytes,
                    (int)INFER_STOP_BYTES_MAX);
    }
    return ST_OK;
}

// "the prompt", or its place in a file.
static const char *name_of(const generation *v, int64_t i, char buffer[512])
{
    if (v->list.path == NULL) return "the prompt";
    (void)snprintf(buffer, 512, "%.400s: line %lld: the prompt", v->list.path,
                   (long long)v->list.items[i].line);
    return buffer;
}

// The requested number of tokens, or 200, limited by the context.
static status max_tokens_set(const generation *v, int64_t i, int64_t *max_tokens)
{
    char buffer[512];
    const int64_t count = v->growths[i].prompt.count, context = v->model.spec.context;
    const int64_t left = context - count, wanted = v->f->max_tokens;
    if (left < 1) {
        return fail(ST_USAGE, "%s has %lld tokens, the model's context is %lld",
                    name_of(v, i, buffer), (long long)count, (long long)context);
    }
    if (wanted > left) {
        return fail(ST_USAGE,
                    "--max-tokens %lld: the model's context is %lld tokens and %s has %lld, which "
                    "leaves %lld",
                    (long long)wanted, (long long)context, name_of(v, i, buffer), (long long)count,
                    (long long)left);
    }
    *max_tokens = wanted > 0 ? wanted : min_i64(TOKENS_DEFAULT, left);
    return ST_OK;
}

static status prompt_take(generation *v, int64_t i)
{
    char buffer[512];
    growth *p = &v->growths[i];
    const prompt_text *t = &v->list.items[i];
    p->grown.stops = v->f->stop.items;
    p->grown.stop_count = v->f->stop.count;
    if (v->chat != NULL) {
        text asked;
        TRY(data_chat_prompt(v->chat, v->cli->a, v->f->system, t->bytes, t->count, &asked));
        TRY(data_tokenizer_encode(v->tokenizer, asked.bytes, asked.length, DATA_ENCODE_SPECIAL,
                                  &p->prompt));
    } else {
        TRY(data_tokenizer_encode(v->tokenizer, t->bytes, t->count,
                                  data_tokenizer_flags(v->tokenizer), &p->prompt));
    }
    if (p->prompt.count == 0) {
        return fail(ST_USAGE, "%s has no token in this model's tokenizer", name_of(v, i, buffer));
    }
    v->prompts[i] =
        (infer_prompt){.ids = p->prompt.items, .count = p->prompt.count, .sampling = v->sampling};
    return max_tokens_set(v, i, &v->prompts[i].max_tokens);
}

static status prompts_take(generation *v)
{
    arena *a = v->cli->a;
    TRY(v->f->prompt != NULL ? prompt_list_one(v->cli, v->f->prompt, &v->list)
                             : prompt_list_file(v->cli, v->f->prompts, &v->list));
    TRY(arena_new(a, v->list.count, &v->growths));
    TRY(arena_new(a, v->list.count, &v->prompts));
    for (int64_t i = 0; i < v->list.count; i++) TRY(prompt_take(v, i));
    return ST_OK;
}

// ---- output -------------------------------------------------------------------------------------

static status add_ids(text *t, const data_ids *ids)
{
    for (int64_t i = 0; i < ids->count; i++) {
        TRY(text_add(t, "%s%d", i == 0 ? "[" : ", ", ids->items[i]));
    }
    return text_add(t, ids->count == 0 ? "[]" : "]");
}

// Adds the prompt as given, or its decoded tokens if it is not UTF-8.
static status add_prompt(const generation *v, int64_t i, text *t)
{
    const prompt_text *given = &v->list.items[i];
    const growth *p = &v->growths[i];
    if (text_is_utf8(given->bytes, given->count))
        return cli_add_json_text(t, given->bytes, given->count);
    data_bytes all = {0};
    data_decoder decoder = {0};
    status st = ST_OK;
    for (int64_t k = 0; k < p->prompt.count && st == ST_OK; k++) {
        st = data_decoder_next(&decoder, v->tokenizer, p->prompt.items[k], 0, &all);
    }
    if (st == ST_OK) st = data_decoder_end(&decoder, &all);
    data_decoder_deinit(&decoder);
    if (st == ST_OK) st = cli_add_json_text(t, all.items, all.count);
    data_bytes_deinit(&all);
    return st;
}

static status print_json(const generation *v, int64_t i)
{
    const growth *p = &v->growths[i];
    const double seconds = (double)(p->end_ns - p->begin_ns) / 1e9;
    text t = {.a = v->cli->a};
    TRY(text_add(&t, "{\"prompt\": "));
    TRY(add_prompt(v, i, &t));
    TRY(text_add(&t, ", \"text\": "));
    TRY(cli_add_json_text(&t, p->grown.text.items, p->grown.certain));
    TRY(text_add(&t, ", \"prompt_tokens\": "));
    TRY(add_ids(&t, &p->prompt));
    TRY(text_add(&t, ", \"tokens\": "));
    TRY(add_ids(&t, &p->ids));
    TRY(text_add(&t,
                 ", \"finish\": \"%s\", \"seed\": %llu, \"precision\": \"%s\", "
                 "\"strict\": %s, \"batch\": %lld, \"seconds\": %.6g, "
                 "\"tokens_per_s\": %.6g}\n",
                 finish_names[p->why], (unsigned long long)v->sampling.seed,
                 dtype_name(v->options.compute), v->options.strict ? "true" : "false",
                 (long long)v->options.slots, seconds,
                 seconds > 0.0 ? (double)p->ids.count / seconds : 0.0));
    cli_print_text(v->cli, &t);
    cli_push(v->cli);
    return ST_OK;
}

static void print_bytes(const generation *v, const char *bytes, int64_t count)
{
    if (count <= 0) return;
    const text piece = {.bytes = (char *)(uintptr_t)bytes, .length = count};
    cli_print_text(v->cli, &piece);
}

// Prints the output that is due: all finished prompts in their order, and the beginning of the next
// one.
static status tell(generation *v, bool is_end)
{
    for (; v->told < v->list.count; v->told++) {
        const int64_t i = v->told;
        growth *p = &v->growths[i];
        if (p->begin_ns == 0) return ST_OK; // the prompt has not started
        const bool is_over = p->why != FINISH_NOT_YET || is_end;
        if (v->f->json) {
            if (!is_over) return ST_OK;
            TRY(print_json(v, i));
            continue;
        }
        // A conversation shows the answers alone.
        if (v->chat != NULL) p->prompt_shown = true;
        if (!p->prompt_shown) print_bytes(v, v->list.items[i].bytes, v->list.items[i].count);
        p->prompt_shown = true;
        if (p->grown.certain > p->shown) { // there may be no text yet
            print_bytes(v, p->grown.text.items + p->shown, p->grown.certain - p->shown);
        }
        p->shown = p->grown.certain;
        if (is_over) cli_print(v->cli, i + 1 < v->list.count ? "\n\n" : "\n");
        cli_push(v->cli);
        if (!is_over) return ST_OK;
    }
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static int64_t now_ns(const generation *v)
{
    return v->cli->h->api->monotonic_ns(v->cli->h);
}

static status drawn(void *context, int64_t index, int32_t id, bool *ends)
{
    generation *v = context;
    growth *p = &v->growths[index];
    if (ends_text(v, id)) {
        p->why = FINISH_EOS;
    } else {
        TRY(data_ids_add(&p->ids, &id, 1));
        TRY(infer_continuation_add(&p->grown, v->tokenizer, id));
        if (p->grown.stopped) {
            p->why = FINISH_STOP;
        } else if (p->ids.count == v->prompts[index].max_tokens) {
            p->why = FINISH_LENGTH;
        }
    }
    p->end_ns = now_ns(v);
    *ends = p->why != FINISH_NOT_YET;
    if (*ends) TRY(infer_continuation_end(&p->grown));
    return index == v->told ? tell(v, false) : ST_OK;
}

static bool stop_asked(void *context)
{
    const generation *v = context;
    return cli_signals_asked() || v->cli->write_error != 0;
}

static status begun(void *context, int64_t index)
{
    generation *v = context;
    v->growths[index].begin_ns = max_i64(1, now_ns(v));
    return index == v->told ? tell(v, false) : ST_OK;
}

static status grow(generation *v)
{
    const infer_watcher watcher = {
        .context = v, .begun = begun, .drawn = drawn, .stop = stop_asked};
    TRY(infer_run(v->g, v->prompts, v->list.count, &watcher));
    for (int64_t i = v->told; i < v->list.count; i++) { // a signal came
        TRY(infer_continuation_end(&v->growths[i].grown));
        v->growths[i].end_ns = now_ns(v);
    }
    return tell(v, true);
}

// Opens the requested number of slots, or fewer if memory is short. The context is that of the
// longest text.
static status model_open(generation *v)
{
    v->options = (infer_options){.threads = (int)v->f->threads,
                                 .compute = cli_model_type(&v->model, v->f->precision),
                                 .slots = min_i64(v->f->batch, v->list.count),
                                 .cache = v->f->cache,
                                 .strict = v->f->strict,
                                 .adapter = v->f->adapter};
    cli_device_set(v->keys, v->model.strict, &v->options);
    for (int64_t i = 0; i < v->list.count; i++) {
        const infer_prompt *p = &v->prompts[i];
        v->options.context = max_i64(v->options.context, p->count + p->max_tokens);
        v->options.chunk = max_i64(v->options.chunk, min_i64(p->count, CHUNK_MAX));
    }
    return cli_infer_open(v->cli, &v->model, &v->options, &v->g);
}

static status sampling_find(generation *v)
{
    const host *h = v->cli->h;
    v->sampling = (infer_sampling){.temperature = v->f->temperature,
                                   .top_k = v->f->top_k,
                                   .top_p = v->f->top_p,
                                   .min_p = v->f->min_p,
                                   .seed = (uint64_t)v->f->seed};
    if (v->f->seed != 0) return ST_OK;
    uint32_t seed = 0; // short enough to type again
    TRY(h->api->random_fill(h, &seed, (int64_t)sizeof(seed)));
    v->sampling.seed = (uint64_t)seed + 1;
    return ST_OK;
}

static status generate(generation *v)
{
    cli_warn_threads(v->cli, v->f->threads);
    TRY(cli_tokenizer_open(v->cli, &v->model, v->f->tokenizer, &v->tokenizer));
    if (v->f->template_name != NULL) {
        TRY(cli_chat_open(v->cli, &v->model, v->f->tokenizer, v->f->template_name, v->tokenizer,
                          &v->chat));
    }
    if (!v->f->ignore_eot) {
        TRY(cli_ends_find(v->cli, &v->model, v->tokenizer, v->chat, &v->ends));
    }
    TRY(sampling_find(v));
    TRY(prompts_take(v));
    TRY(model_open(v));
    cli_signals_begin_quiet();
    const status st = grow(v);
    if (st == ST_OK) cli_signals_raise(); // all text was printed
    cli_signals_end();
    return st;
}

static status run(cli_context *cli, const cli_call *call)
{
    generation v = {.cli = cli, .f = call->flags};
    status st = flags_check(v.f);
    if (st == ST_OK) st = cli_device_find(cli, call, "generate", &v.keys);
    if (st == ST_OK) st = cli_model_find(cli, call->operands[0], &v.model);
    if (st == ST_OK) st = generate(&v);
    infer_close(v.g);
    data_chat_close(v.chat);
    data_tokenizer_close(v.tokenizer);
    for (int64_t i = 0; v.growths != NULL && i < v.list.count; i++) {
        data_ids_deinit(&v.growths[i].prompt);
        data_ids_deinit(&v.growths[i].ids);
        infer_continuation_deinit(&v.growths[i].grown);
    }
    return st;
}

const cli_command cli_command_generate = {
    .name = "generate",
    .summary = "generate text with a trained model",
    .synopsis = "RUN|CHECKPOINT|FOLDER (--prompt TEXT | --prompts FILE) [--max-tokens N] "
                "[--temperature X] [--top-k K] [--top-p P] [--min-p P] [--seed S] [--stop TEXT] "
                "[--template T [--system TEXT]] [--json] [kernels.device=cuda]",
    .about =
        "For a run, the command takes its newest checkpoint. FOLDER is a Hugging Face folder. "
        "The prompt is used unchanged, without a token before it; with --template it is a message to "
        "which the model answers, and only the answer is printed. A text ends with its last "
        "token, at an end-of-text token of the model, or before a stop text; in JSON, finish "
        "is length, eos or stop. The results of a file's prompts come in their order, each "
        "with the same random draws as if run alone. An interrupt prints the text so far and ends the "
        "program as the signal does (130 in a shell); finish is then interrupted. "
        "kernels.device=cuda generates on an NVIDIA GPU, where this has not run yet; "
        "kernels.graphs is the only other key.",
    .examples =
        "  trireme generate demo/run --prompt 'In the beginning'\n"
        "  trireme generate demo/run --prompt 'And' --temperature 0\n"
        "  trireme generate demo/run --prompts prompts.txt --stop '.' --seed 1 --json\n"
        "  trireme generate sft/run --prompt 'What is 2 + 2?' --template auto\n"
        "  trireme generate ~/models/gpt2 --prompt 'Once' --max-tokens 50 --seed 1 --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(generate_flags),
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
