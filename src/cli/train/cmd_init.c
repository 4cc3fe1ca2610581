// `init`: makes a folder with a configuration and a text, ready to train.
#include "cli/commands.h"
#include "cli/embedded.h"
#include "data/tokenizer_train.h"

#include <sched.h>
#include <string.h>

typedef struct init_flags {
    int32_t preset;
    const char *tokenizer;
} init_flags;

static const option rows[] = {
    {.key = "preset",
     .kind = OPTION_CHOICE,
     .offset = (int64_t)offsetof(init_flags, preset),
     .default_text = "tiny",
     .choices = "tiny, 124m",
     .help = "size of the model: tiny learns letters in a minute or two on two cores; 124m is "
             "GPT-2's size"},
    {.key = "tokenizer",
     .kind = OPTION_TEXT,
     .offset = (int64_t)offsetof(init_flags, tokenizer),
     .default_text = "bytes",
     .help = "bytes, or bpe:8k or unigram:8k to train one of 8,000 tokens on DIR/text.txt"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static const char *const configs[] = {"tiny.yaml", "124m.yaml"};

// Writes a file that the program carries to `path`.
static status file_put(cli_context *cli, const char *name, const char *path)
{
    char *data = NULL;
    int64_t bytes = 0;
    TRY(cli_embedded_read(cli->a, name, &data, &bytes));
    return host_write_all(cli->h, path, data, bytes);
}

// The size of "bpe:8k", "bpe:8000" or "unigram:8k"; 0 for "bytes".
static status vocab_of(const char *tokenizer, data_train_kind *kind, int64_t *vocab)
{
    enum { LEAST = 300 };
    char digits[16] = "";
    const char *colon = strchr(tokenizer, ':');
    *vocab = 0;
    if (strcmp(tokenizer, "bytes") == 0) return ST_OK;
    const size_t name = colon != NULL ? (size_t)(colon - tokenizer) : 0;
    const bool is_bpe = name == 3 && strncmp(tokenizer, "bpe", name) == 0;
    const bool is_unigram = name == 7 && strncmp(tokenizer, "unigram", name) == 0;
    *kind = is_unigram ? DATA_TRAIN_UNIGRAM : DATA_TRAIN_BPE;
    if ((is_bpe || is_unigram) && colon[1] != 0 && strlen(colon + 1) < sizeof(digits)) {
        memcpy(digits, colon + 1, strlen(colon + 1) + 1);
        const size_t n = strlen(digits);
        const bool is_thousands = digits[n - 1] == 'k';
        if (is_thousands) digits[n - 1] = 0;
        if (text_parse_i64(digits, vocab) && *vocab > 0 && *vocab <= DATA_TRAIN_VOCAB_MAX) {
            *vocab *= is_thousands ? 1000 : 1;
            if (*vocab >= LEAST && *vocab <= DATA_TRAIN_VOCAB_MAX) return ST_OK;
        }
    }
    return fail(ST_USAGE,
                "--tokenizer %s: expected bytes, or bpe: or unigram: with a number of tokens from "
                "%d to %d, such as bpe:8k",
                tokenizer, (int)LEAST, DATA_TRAIN_VOCAB_MAX);
}

static status tokenizer_make(cli_context *cli, const char *folder, const char *text_path,
                             data_train_kind kind, int64_t vocab)
{
    static const char *const end_of_text[] = {"<|endoftext|>"};
    cpu_set_t set;
    char *path = NULL;
    data_train_result r;
    const int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    const data_train_options options = {
        .kind = kind,
        .vocab_size = vocab,
        .special = end_of_text,
        .special_count = 1,
        .threads = (int32_t)min_i64(max_i64(count, 1), DATA_TRAIN_THREADS_MAX)};
    TRY(path_join(cli->a, folder, "tokenizer.json", &path));
    TRY(data_tokenizer_train(cli->h, &text_path, 1, &options, path, &r));
    cli_print(cli, "       %s   (%lld tokens, trained on %s)\n", path, (long long)r.vocab_size,
              path_base_name(text_path));
    return ST_OK;
}

// The configuration, with the new tokenizer in place of bytes.
static status config_put(cli_context *cli, const char *name, const char *path, bool has_tokenizer)
{
    static const char key[] = "tokenizer: ", bytes[] = "bytes";
    char *data = NULL;
    int64_t count = 0;
    TRY(cli_embedded_read(cli->a, name, &data, &count));
    if (has_tokenizer) {
        char *found = strstr(data, key);
        ASSERT(found != NULL && strncmp(found + strlen(key), bytes, strlen(bytes)) == 0);
        text changed = {.a = cli->a};
        const int64_t before = found + (int64_t)strlen(key) - data;
        TRY(text_add_bytes(&changed, data, before));
        TRY(text_add(&changed, "tokenizer.json"));
        const int64_t after = before + (int64_t)strlen(bytes);
        TRY(text_add(&changed, "%s", data + after)); // ends with NUL
        data = changed.bytes;
        count = changed.length;
        char *line = strstr(data, "\n  vocab: "); // the vocabulary is the tokenizer's
        const char *next = line != NULL ? strchr(line + 1, '\n') : NULL;
        if (next != NULL) {
            memmove(line, next, (size_t)(data + count - next));
            count -= next - line;
        }
    }
    return host_write_all(cli->h, path, data, count);
}

static status run(cli_context *cli, const cli_call *call)
{
    const init_flags *f = call->flags;
    int64_t vocab = 0;
    data_train_kind kind = DATA_TRAIN_BPE;
    TRY(vocab_of(f->tokenizer, &kind, &vocab));
    const char *folder = call->operands[0];
    char *config_path = NULL, *text_path = NULL, *about_path = NULL;
    file_info info;
    TRY(path_join(cli->a, folder, "config.yaml", &config_path));
    TRY(path_join(cli->a, folder, "text.txt", &text_path));
    TRY(path_join(cli->a, folder, "text.md", &about_path));
    TRY(cli->h->api->path_info(cli->h, config_path, &info));
    if (info.kind != FILE_KIND_NONE) {
        return fail(ST_USAGE, "%s exists already; train with it, or give another folder",
                    config_path);
    }
    TRY(cli->h->api->path_mkdir(cli->h, folder));
    TRY(cli->h->api->path_info(cli->h, text_path, &info));
    if (info.kind == FILE_KIND_NONE) { // an existing text belongs to the user
        TRY(file_put(cli, ".txt", text_path));
        TRY(file_put(cli, ".md", about_path));
    }
    TRY(config_put(cli, configs[f->preset], config_path, vocab > 0));
    cli_print(cli, "made   %s\n       %s   (public domain; %s says from where)\n", config_path,
              text_path, path_base_name(about_path));
    if (vocab > 0) TRY(tokenizer_make(cli, folder, text_path, kind, vocab));
    const char *quoted = NULL, *run_path = NULL;
    char *run = NULL;
    TRY(text_quote(cli->a, config_path, &quoted));
    TRY(path_join(cli->a, folder, "run", &run));
    TRY(text_quote(cli->a, run, &run_path));
    cli_print(cli, "next   trireme train %s\n       trireme generate %s --prompt 'The '\n", quoted,
              run_path);
    return ST_OK;
}

const cli_command cli_command_init = {
    .name = "init",
    .summary = "make a folder with a configuration and a text, ready to train",
    .synopsis = "DIR [--preset tiny|124m] [--tokenizer bytes|bpe:8k|unigram:8k]",
    .about =
        "Writes DIR/config.yaml, which has every common key with a comment, and DIR/text.txt, "
        "a public-domain text. Put your own text there, or name your files in data.train. With --tokenizer bpe:8k "
        "or unigram:8k it trains a tokenizer on the text and writes DIR/tokenizer.json.",
    .examples = "  trireme init demo\n"
                "  trireme train demo/config.yaml\n"
                "  trireme init mine --tokenizer bpe:2k\n",
    .flags = &flags,
    .flags_bytes = sizeof(init_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
