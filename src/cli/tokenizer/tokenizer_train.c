// `tokenizer train`: a new tokenizer from texts.
#include "data/tokenizer_train.h"
#include "cli/model_folder.h"
#include "cli/tokenizer/tokenizer.h"

#include <sched.h>
#include <string.h>

typedef struct training {
    cli_context *cli;
    int64_t begin_ns, shown_ns;
} training;

static status report(void *context, const char *path, int64_t done, int64_t all)
{
    static const int64_t interval_ns = 100000000;
    training *t = context;
    char have[32], whole[32];
    const int64_t now = t->cli->h->api->monotonic_ns(t->cli->h);
    if (!t->cli->live || now - t->shown_ns < interval_ns) return ST_OK;
    t->shown_ns = now;
    cli_print(t->cli, "\r%.30s  %s of %s\033[K", path_base_name(path), text_bytes_human(done, have),
              text_bytes_human(all, whole));
    cli_push(t->cli);
    return ST_OK;
}

static int32_t threads_of(const tokenizer_flags *f)
{
    cpu_set_t set;
    int64_t count = f->threads;
    if (count == 0) count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return (int32_t)max_i64(1, min_i64(count, DATA_TRAIN_THREADS_MAX));
}

// DIR stands for DIR/tokenizer.json.
static status out_path(cli_context *cli, const char *out, const char **path)
{
    const size_t n = strlen(out);
    *path = out;
    if (n > 5 && strcmp(out + n - 5, ".json") == 0) return ST_OK;
    char *joined = NULL;
    TRY(cli->h->api->path_mkdir(cli->h, out));
    TRY(path_join(cli->a, out, "tokenizer.json", &joined));
    *path = joined;
    return ST_OK;
}

status tokenizer_train(cli_context *cli, const cli_call *call, const tokenizer_flags *f)
{
    enum { VOCAB_DEFAULT = 8192 };
    static const char *const end_of_text[] = {"<|endoftext|>"};
    if (f->out == NULL) {
        return fail(ST_USAGE, "tokenizer train needs --out, the tokenizer.json or its folder");
    }
    if (call->operand_count < 2) {
        return fail(ST_USAGE, "tokenizer train needs texts: trireme tokenizer train -o FOLDER "
                              "TEXT...");
    }
    const bool has_none =
        f->special_tokens.count == 1 && strcmp(f->special_tokens.items[0], "none") == 0;
    const bool is_default = f->special_tokens.count == 0;
    training t = {.cli = cli, .begin_ns = cli->h->api->monotonic_ns(cli->h)};
    cli_warn_threads(cli, f->threads);
    const data_train_options options = {.kind = (data_train_kind)f->model,
                                        .vocab_size = f->vocab != 0 ? f->vocab : VOCAB_DEFAULT,
                                        .min_frequency = f->min_frequency,
                                        .words_max = f->max_words,
                                        .split = (data_train_split)f->split,
                                        .pattern = f->pattern,
                                        .special =
                                            is_default ? end_of_text : f->special_tokens.items,
                                        .special_count = has_none     ? 0
                                                         : is_default ? 1
                                                                      : f->special_tokens.count,
                                        .by_line = f->lines,
                                        .threads = threads_of(f),
                                        .report = report,
                                        .context = &t};
    const char *path = NULL, *quoted = NULL;
    data_train_result r;
    TRY(out_path(cli, f->out, &path));
    const status st = data_tokenizer_train(cli->h, call->operands + 1, call->operand_count - 1,
                                           &options, path, &r);
    if (cli->live) cli_print(cli, "\r\033[K");
    TRY(st);
    const double seconds = (double)(cli->h->api->monotonic_ns(cli->h) - t.begin_ns) / 1e9;
    cli_print(cli, "made   %s   %lld tokens", path, (long long)r.vocab_size);
    if (options.kind == DATA_TRAIN_BPE) cli_print(cli, ", %lld merges", (long long)r.merges);
    cli_print(cli, " from %lld different words, %.1f s\n", (long long)r.words, seconds);
    if (r.vocab_size < options.vocab_size) {
        cli_warn(cli,
                 "%lld tokens were asked for, but the texts have no more %s that occur %lld "
                 "times; more text makes more",
                 (long long)options.vocab_size, options.kind == DATA_TRAIN_BPE ? "pairs" : "pieces",
                 (long long)max_i64(options.kind == DATA_TRAIN_BPE ? 1 : 2, f->min_frequency));
    }
    if (r.words_dropped > 0) {
        cli_warn(cli,
                 "%lld times a rare word was forgotten, so counts are too low; --max-words keeps "
                 "more",
                 (long long)r.words_dropped);
    }
    TRY(text_quote(cli->a, path, &quoted));
    cli_print(cli, "next   trireme train CONFIG data.tokenizer=%s\n", quoted);
    return ST_OK;
}
