// `generate`: text from a trained model, token by token.
#include "base/json.h"
#include "cli/commands.h"
#include "cli/model_folder.h"
#include "data/tokenizer.h"
#include "infer/infer.h"

#include <string.h>

typedef struct generate_flags {
    const char *prompt, *tokenizer;
    int64_t max_tokens, top_k, seed, threads;
    double temperature, top_p, min_p;
    int32_t precision; // 0: as the run
    bool ignore_eot, json;
} generate_flags;

#define AT(field) (int64_t) offsetof(generate_flags, field)
static const option rows[] = {
    {.key = "prompt",
     .kind = OPTION_TEXT,
     .offset = AT(prompt),
     .default_text = "",
     .help = "text to continue; - reads it from standard input; empty begins a new document"},
    {.key = "max-tokens",
     .kind = OPTION_INT,
     .offset = AT(max_tokens),
     .default_text = "0",
     .max = 1 << 24,
     .help = "how many tokens at most; 0 is 200, or what the model's context leaves",
     .also = "n, num_tokens, length, max_new_tokens"},
    {.key = "temperature",
     .kind = OPTION_REAL,
     .offset = AT(temperature),
     .default_text = "0.8",
     .max = 100,
     .help = "0 takes the likeliest token, 1 draws as the model says, more is wilder",
     .also = "temp, t"},
    {.key = "top-k",
     .kind = OPTION_INT,
     .offset = AT(top_k),
     .default_text = "0",
     .max = 1 << 24,
     .help = "draw from the k likeliest tokens; 0 is all"},
    {.key = "top-p",
     .kind = OPTION_REAL,
     .offset = AT(top_p),
     .default_text = "1",
     .max = 1,
     .help = "draw from the likeliest tokens that together reach this probability; 1 is all"},
    {.key = "min-p",
     .kind = OPTION_REAL,
     .offset = AT(min_p),
     .default_text = "0",
     .max = 1,
     .help = "leave out tokens with less than this share of the likeliest one's probability"},
    {.key = "seed",
     .kind = OPTION_INT,
     .offset = AT(seed),
     .default_text = "0",
     .max = 9007199254740992.0,
     .help = "same seed, same text; 0 takes a new one each time"},
    {.key = "tokenizer",
     .kind = OPTION_TEXT,
     .offset = AT(tokenizer),
     .help = "bytes, a tokenizer.json or a folder with one; by default the model's own"},
    {.key = "precision",
     .kind = OPTION_CHOICE,
     .offset = AT(precision),
     .default_text = "auto",
     .choices = "auto, fp32, bf16, fp16",
     .help = "type of weights, cache and activations; auto is the run's, fp32 of other folders"},
    {.key = "threads",
     .kind = OPTION_INT,
     .offset = AT(threads),
     .default_text = "0",
     .max = KERN_MAX_THREADS,
     .help = "0 is one per core"},
    {.key = "ignore-eot",
     .kind = OPTION_BOOL,
     .offset = AT(ignore_eot),
     .default_text = "false",
     .help = "go on after the end of a document"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "one JSON object at the end instead of text"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct generation {
    cli_context *cli;
    const generate_flags *f;
    cli_model model;
    data_tokenizer *tokenizer;
    infer *g;
    infer_sampling sampling;
    data_ids prompt, ids;
    data_bytes prompt_text, text;
    data_decoder decoder;
    int64_t max_tokens;
    bool ended; // by an end-of-text token
    double seconds;
} generation;

// ---- the prompt ---------------------------------------------------------------------------------

static status standard_input(data_bytes *out)
{
    char buffer[4096];
    size_t count = 0;
    while ((count = fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
        TRY(data_bytes_add(out, buffer, (int64_t)count));
    }
    return ferror(stdin) ? fail(ST_IO, "standard input cannot be read") : ST_OK;
}

static status prompt_read(generation *v)
{
    const char *given = v->f->prompt;
    if (strcmp(given, "-") == 0) {
        TRY(standard_input(&v->prompt_text));
    } else {
        TRY(data_bytes_add(&v->prompt_text, given, (int64_t)strlen(given)));
    }
    TRY(data_tokenizer_encode(v->tokenizer, v->prompt_text.items, v->prompt_text.count,
                              DATA_ENCODE_SPECIAL, &v->prompt));
    if (v->prompt.count > 0) return ST_OK;
    const int32_t eot = data_tokenizer_eot(v->tokenizer);
    if (eot < 0 || eot >= v->model.spec.vocab) {
        return fail(ST_USAGE, "an empty prompt needs a tokenizer with an end-of-text token; give "
                              "--prompt");
    }
    return data_ids_add(&v->prompt, &eot, 1);
}

// The context is made as long as this text needs, no longer.
static status room_find(generation *v, int64_t *context)
{
    enum { TOKENS_DEFAULT = 200 };
    const int64_t room = v->model.spec.context - v->prompt.count;
    v->max_tokens = v->f->max_tokens;
    if (room < 1) {
        return fail(ST_USAGE, "the prompt has %lld tokens, the model's context is %lld",
                    (long long)v->prompt.count, (long long)v->model.spec.context);
    }
    if (v->max_tokens == 0) v->max_tokens = min_i64(TOKENS_DEFAULT, room);
    if (v->max_tokens > room) {
        return fail(ST_USAGE,
                    "--max-tokens %lld: the model's context is %lld tokens and the prompt has "
                    "%lld, which leaves %lld",
                    (long long)v->max_tokens, (long long)v->model.spec.context,
                    (long long)v->prompt.count, (long long)room);
    }
    *context = v->prompt.count + v->max_tokens;
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static bool ends_text(const generation *v, int32_t id)
{
    if (v->f->ignore_eot) return false;
    return id == data_tokenizer_eot(v->tokenizer) || id == v->model.spec.eos_token;
}

// Text from `from` on goes to the terminal as soon as its characters are whole.
static void show(const generation *v, int64_t from)
{
    if (v->f->json || v->text.count <= from) return;
    const text piece = {.bytes = v->text.items + from, .length = v->text.count - from};
    cli_print_text(v->cli, &piece);
    cli_push(v->cli);
}

static status grow(generation *v)
{
    int32_t id = 0;
    TRY(infer_begin(v->g, &v->sampling, v->prompt.items, v->prompt.count, &id));
    for (int64_t i = 0;;) {
        if (ends_text(v, id)) {
            v->ended = true;
            break;
        }
        const int64_t from = v->text.count;
        TRY(data_ids_add(&v->ids, &id, 1));
        TRY(data_decoder_next(&v->decoder, v->tokenizer, id, 0, &v->text));
        show(v, from);
        if (++i == v->max_tokens || v->cli->write_error != 0) break;
        TRY(infer_next(v->g, id, &id));
    }
    const int64_t from = v->text.count;
    TRY(data_decoder_end(&v->decoder, &v->text));
    show(v, from);
    return ST_OK;
}

// ---- what is told -------------------------------------------------------------------------------

static status add_text(text *t, const data_bytes *bytes)
{
    char *copy = NULL;
    TRY(arena_format(t->a, &copy, "%.*s", (int)bytes->count, bytes->items));
    return text_add_json(t, text_is_utf8(copy, (int64_t)strlen(copy)) ? copy : "");
}

static status add_ids(text *t, const data_ids *ids)
{
    for (int64_t i = 0; i < ids->count; i++) {
        TRY(text_add(t, "%s%d", i == 0 ? "[" : ", ", ids->items[i]));
    }
    return text_add(t, ids->count == 0 ? "[]" : "]");
}

static status print_json(const generation *v)
{
    text t = {.a = v->cli->a};
    TRY(text_add(&t, "{\"prompt\": "));
    TRY(add_text(&t, &v->prompt_text));
    TRY(text_add(&t, ", \"text\": "));
    TRY(add_text(&t, &v->text));
    TRY(text_add(&t, ", \"prompt_ids\": "));
    TRY(add_ids(&t, &v->prompt));
    TRY(text_add(&t, ", \"ids\": "));
    TRY(add_ids(&t, &v->ids));
    TRY(text_add(&t, ", \"stop\": \"%s\", \"seed\": %llu, \"seconds\": %.6g}\n",
                 v->ended ? "end_of_text" : "length", (unsigned long long)v->sampling.seed,
                 v->seconds));
    cli_print_text(v->cli, &t);
    return ST_OK;
}

static status generate(generation *v)
{
    const host *h = v->cli->h;
    int64_t context = 0;
    TRY(cli_tokenizer_open(v->cli, &v->model, v->f->tokenizer, &v->tokenizer));
    TRY(prompt_read(v));
    TRY(room_find(v, &context));
    const infer_options options = {.threads = (int)v->f->threads,
                                   .compute = v->f->precision == 0 ? v->model.compute
                                                                   : (dtype)(v->f->precision - 1),
                                   .context = context};
    TRY(infer_open(h, v->cli->a, v->model.folder, &options, &v->g));
    v->sampling = (infer_sampling){.temperature = v->f->temperature,
                                   .top_k = v->f->top_k,
                                   .top_p = v->f->top_p,
                                   .min_p = v->f->min_p,
                                   .seed = (uint64_t)v->f->seed};
    if (v->f->seed == 0) {
        uint32_t seed = 0; // short enough to be typed again
        TRY(h->api->random_fill(h, &seed, (int64_t)sizeof(seed)));
        v->sampling.seed = (uint64_t)seed + 1;
    }
    if (!v->f->json) {
        const text shown = {.bytes = v->prompt_text.items, .length = v->prompt_text.count};
        cli_print_text(v->cli, &shown);
        cli_push(v->cli);
    }
    const int64_t begin = h->api->monotonic_ns(h);
    TRY(grow(v));
    v->seconds = (double)(h->api->monotonic_ns(h) - begin) / 1e9;
    if (v->f->json) return print_json(v);
    cli_print(v->cli, "\n");
    return ST_OK;
}

_Static_assert((int)DTYPE_F32 == 0 && (int)DTYPE_BF16 == 1 && (int)DTYPE_F16 == 2,
               "--precision counts as dtype does");

static status run(cli_context *cli, const cli_call *call)
{
    generation v = {.cli = cli, .f = call->flags};
    status st = cli_model_find(cli, call->operands[0], &v.model);
    if (st == ST_OK) st = generate(&v);
    infer_close(v.g);
    data_tokenizer_close(v.tokenizer);
    data_ids_deinit(&v.prompt);
    data_ids_deinit(&v.ids);
    data_bytes_deinit(&v.prompt_text);
    data_bytes_deinit(&v.text);
    return st;
}

const cli_command cli_command_generate = {
    .name = "generate",
    .summary = "text from a trained model",
    .synopsis = "RUN|CHECKPOINT|FOLDER [--prompt TEXT] [--max-tokens N] [--temperature X] "
                "[--top-k K] [--top-p P] [--min-p P] [--seed S] [--json]",
    .about =
        "Of a run: its newest checkpoint. FOLDER is a Hugging Face folder. The prompt is taken "
        "as it is: nothing is put before it.",
    .examples =
        "  trireme generate demo/run --prompt 'In the beginning'\n"
        "  trireme generate demo/run --prompt 'And' --temperature 0\n"
        "  trireme generate ~/models/gpt2 --prompt 'Once' --max-tokens 50 --seed 1 --json\n",
    .flags = &flags,
    .flags_bytes = sizeof(generate_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
