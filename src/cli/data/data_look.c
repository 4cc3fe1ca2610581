// `data look`: shows which tokens of a run's sequences are trained.
//
// On a terminal trained text is green and the rest is dim; in a file trained text stands between
// [+ and +]. A token is trained if it is the label of the one before it.
#include "cli/data/data_look.h"

#include "cli/data/data_commands.h"

#include "cli/run_folder.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "train/loader.h"

#include <string.h>

void data_print_visible(cli_context *cli, const data_bytes *t)
{
    int64_t begin = 0;
    for (int64_t i = 0; i <= t->count; i++) {
        const unsigned char c = i < t->count ? (unsigned char)t->items[i] : 0;
        if (i < t->count && ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t')) continue;
        const text plain = {.bytes = t->items + begin, .length = i - begin};
        if (plain.length > 0) cli_print_text(cli, &plain);
        if (i < t->count) cli_print(cli, "\\x%02x", c);
        begin = i + 1;
    }
}

typedef struct looking {
    cli_context *cli;
    const run_config *r;
    const data_dataset *d;
    const data_tokenizer *tokenizer;
    data_rows row; // of one sequence
    data_bytes buffer;
} looking;

static bool is_trained(const looking *l, int64_t t)
{
    const bool begins = t == 0 || l->row.documents[t] != l->row.documents[t - 1];
    return !begins && l->row.labels[t - 1] != DATA_LABEL_IGNORED;
}

// Tokens [begin, end), which are all trained or all not.
static status part_print(looking *l, int64_t begin, int64_t end)
{
    cli_context *cli = l->cli;
    data_decoder decoder = {.pending_count = 0};
    const bool trained = is_trained(l, begin), colour = cli->live && cli->colour;
    status st = ST_OK;
    l->buffer.count = 0;
    for (int64_t t = begin; t < end && st == ST_OK; t++) {
        st = data_decoder_next(&decoder, l->tokenizer, l->row.ids[t],
                               t > begin ? DATA_DECODE_CONTINUES : 0, &l->buffer);
    }
    if (st == ST_OK) st = data_decoder_end(&decoder, &l->buffer);
    data_decoder_deinit(&decoder);
    TRY(st);
    if (colour) cli_print(cli, "%s", trained ? "\033[1;32m" : "\033[2m");
    if (trained && !colour) cli_print(cli, "[+");
    data_print_visible(cli, &l->buffer);
    if (trained && !colour) cli_print(cli, "+]");
    if (colour) cli_print(cli, "\033[0m");
    return ST_OK;
}

// Where the padding of a sequence of samples begins: behind the last document with a label, if all
// ids from there on are equal.
static int64_t padding_begin(const looking *l, int64_t seq)
{
    int64_t t = seq;
    if (data_dataset_samples(l->d, DATA_TRAIN) == NULL) return seq;
    while (t > 0 && l->row.documents[t - 1] == l->row.documents[seq - 1]) {
        if (l->row.ids[t - 1] != l->row.ids[seq - 1]) return seq;
        if (l->row.labels[t - 1] != DATA_LABEL_IGNORED) return seq;
        t--;
    }
    return t > 0 ? t : seq;
}

static status row_print(looking *l, int64_t seq)
{
    const int32_t *documents = l->row.documents;
    const int64_t padding = padding_begin(l, seq);
    for (int64_t begin = 0, end = 0; begin < padding; begin = end) {
        if (begin > 0 && documents[begin] != documents[begin - 1]) {
            cli_print(l->cli, "\n-- next document\n");
        }
        for (end = begin + 1; end < padding && documents[end] == documents[begin]; end++) {
            if (is_trained(l, end) != is_trained(l, begin)) break;
        }
        TRY(part_print(l, begin, end));
    }
    cli_print(l->cli, "\n");
    if (padding < seq) cli_print(l->cli, "-- %lld tokens of padding\n", (long long)(seq - padding));
    return ST_OK;
}

static status sequence_print(looking *l, int64_t n)
{
    const int64_t seq = data_dataset_seq(l->d);
    int64_t trained = 0;
    TRY(data_batch_fill(l->d, DATA_TRAIN, n, 1, &l->row));
    for (int64_t t = 0; t < seq; t++) {
        trained += l->row.labels[t] != DATA_LABEL_IGNORED ? 1 : 0;
    }
    cli_print(l->cli, "---- sequence %lld: %lld of %lld tokens are trained\n", (long long)n,
              (long long)trained, (long long)seq);
    return row_print(l, seq);
}

// Warns of samples from which less is learnt than it seems.
static void warn(cli_context *cli, const data_sample_facts *f, int64_t seq)
{
    const long long samples = (long long)f->samples;
    if (f->turns > 0 && f->ended == 0) {
        cli_warn(cli, "no end-of-turn token is ever trained: the model does not learn to end its "
                      "answers; the tokenizer has no special token where the template ends a turn");
    } else if (f->ended < f->turns) {
        cli_warn(cli, "%lld of %lld trained answers do not end in a special token",
                 (long long)(f->turns - f->ended), (long long)f->turns);
    }
    if (f->cut > 0) {
        cli_warn(cli,
                 "%lld of %lld samples are longer than train.seq = %lld and are cut; the longest "
                 "has %lld tokens",
                 (long long)f->cut, samples, (long long)seq, (long long)f->longest);
    }
    if (f->without_trained > 0) {
        cli_warn(cli, "%lld of %lld samples have no trained token", (long long)f->without_trained,
                 samples);
    }
    if (f->empty_prompts > 0) {
        cli_warn(cli,
                 "%lld of %lld samples have an empty prompt: they are trained from their "
                 "first token on",
                 (long long)f->empty_prompts, samples);
    }
}

// The prompts of a run that draws completions, in the order of their steps.
static status prompts_print(looking *l, const data_prompts *p, int64_t count)
{
    cli_context *cli = l->cli;
    cli_print(cli, "%lld prompts, %lld tokens; each gets %lld completions\n", (long long)p->count,
              (long long)p->tokens, (long long)l->r->rollout.group);
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = data_prompts_at(p, (uint64_t)l->r->rollout.seed, n);
        const data_prompt *one = &p->items[i];
        l->buffer.count = 0;
        TRY(data_tokenizer_decode(l->tokenizer, one->ids, one->count, 0, &l->buffer));
        cli_print(cli, "---- prompt %lld: %s:%lld, %lld tokens\n", (long long)n,
                  path_base_name(p->path), (long long)one->line, (long long)one->count);
        data_print_visible(cli, &l->buffer);
        cli_print(cli, "\n");
        if (one->answer != NULL) cli_print(cli, "-- answer: %s\n", one->answer);
    }
    return ST_OK;
}

static status look_at(looking *l, train_loader *loader, int64_t sequences)
{
    char *cache = NULL;
    int32_t *cells = NULL;
    cli_context *cli = l->cli;
    TRY(path_join(cli->a, l->r->run.dir, "cache", &cache));
    TRY(train_loader_prepare(loader, cache, NULL, NULL));
    l->d = train_loader_dataset(loader);
    l->tokenizer = train_loader_decoder(loader);
    const data_prompts *prompts = train_loader_prompts(loader);
    if (prompts != NULL) return prompts_print(l, prompts, sequences);
    const int64_t seq = data_dataset_seq(l->d);
    const data_sample_facts *f = data_dataset_samples(l->d, DATA_TRAIN);
    TRY(arena_new(cli->a, 4 * seq, &cells));
    l->row = (data_rows){cells, cells + seq, cells + 2 * seq, cells + 3 * seq};
    if (f != NULL) {
        cli_print(cli,
                  "%lld samples, %lld tokens, %lld of them trained, in %lld sequences of %lld\n",
                  (long long)f->samples, (long long)f->tokens, (long long)f->trained,
                  (long long)data_dataset_sequences(l->d, DATA_TRAIN), (long long)seq);
    }
    for (int64_t n = 0; n < sequences; n++) TRY(sequence_print(l, n));
    if (f != NULL) warn(cli, f, seq);
    return ST_OK;
}

status data_look(cli_context *cli, const cli_call *call, int64_t sequences)
{
    run_config *r = NULL;
    train_loader *loader = NULL;
    TRY(data_loader_open(cli, call, &r, &loader));
    looking l = {.cli = cli, .r = r};
    const status st = look_at(&l, loader, sequences);
    data_bytes_deinit(&l.buffer);
    train_loader_close(loader);
    return st;
}
