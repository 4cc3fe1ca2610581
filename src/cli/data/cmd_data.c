// `data`: shows the contents of data files (inspect), makes token shards from texts (pack), and
// prints the sequences that a run would train on as text (show), or with marks around what is
// trained (look).
#include "cli/commands.h"
#include "cli/data/data_commands.h"
#include "cli/data/data_look.h"
#include "cli/inspect/inspect.h"
#include "cli/model_folder.h"
#include "cli/run_folder.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "train/loader.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCES_DEFAULT = 2 }; // of show and look

#define AT(field) (int64_t) offsetof(data_flags, field)
static const option rows[] = {
    {.key = "tokenizer",
     .kind = OPTION_TEXT,
     .offset = AT(tokenizer),
     .help = "tokenizer for pack and inspect: bytes, a tokenizer.json or a folder with one"},
    {.key = "out",
     .kind = OPTION_TEXT,
     .offset = AT(out),
     .help = "folder of the shards that pack writes (-o)",
     .also = "output, dir"},
    {.key = "vocab",
     .kind = OPTION_INT,
     .offset = AT(vocab),
     .default_text = "0",
     .max = INT32_MAX,
     .help = "vocabulary that inspect checks all ids against; 0 is the file's own"},
    {.key = "special-tokens",
     .kind = OPTION_CHOICE,
     .offset = AT(special_tokens),
     .default_text = "text",
     .choices = "text, tokens",
     .help = "special tokens that are spelled in texts, as data.special_tokens"},
    {.key = "on-error",
     .kind = OPTION_CHOICE,
     .offset = AT(on_error),
     .default_text = "stop",
     .choices = "stop, skip",
     .help = "lines that pack cannot read, as data.on_error"},
    {.key = "json",
     .kind = OPTION_BOOL,
     .offset = AT(json),
     .default_text = "false",
     .help = "inspect prints a JSON list with an object for each file"},
    {.key = "sequences",
     .kind = OPTION_INT,
     .offset = AT(sequences),
     .default_text = "0",
     .max = 1e6,
     .help = "number of sequences that show and look print, or of samples of each rule; 0 is 2"},
    {.key = "step",
     .kind = OPTION_INT,
     .offset = AT(step),
     .default_text = "0",
     .max = 1e12,
     .help = "step of which trace lists the documents, samples or prompts"},
    {.key = "document",
     .kind = OPTION_TEXT,
     .offset = AT(document),
     .help = "document of which trace lists the steps: its name in the input, or the hash of its "
             "text; of conversations and prompts FILE:LINE, or the \"id\" of the line"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// ---- inspect ------------------------------------------------------------------------------------

// Reads all of the file. Damage ends the command with an error, because it must not be trained on.
static status look(cli_context *cli, const char *path, const data_flags *f, data_tokenizer *t,
                   inspect_report *r)
{
    inspect_probe *p = NULL;
    TRY(arena_new(cli->a, 1, &p));
    TRY(inspect_probe_make(cli, path, p));
    *r = (inspect_report){.cli = cli,
                          .path = path,
                          .kind = p->is_tokens ? "token file" : "text",
                          .scans = true,
                          .vocab = f->vocab,
                          .tokenizer = t};
    if (p->is_tokens) return inspect_tokens(r, p);
    TRY(data_path_check(path));
    return inspect_text(r, p);
}

static status inspect_all(cli_context *cli, const cli_call *call, data_tokenizer *t)
{
    const data_flags *f = call->flags;
    text list = {.a = cli->a};
    for (int64_t i = 1; i < call->operand_count; i++) {
        inspect_report *r = NULL;
        TRY(arena_new(cli->a, 1, &r));
        TRY(look(cli, call->operands[i], f, t, r));
        if (f->json) {
            TRY(text_add(&list, "%s", i == 1 ? "[" : ",\n"));
            TRY(inspect_add_json(r, &list));
        } else {
            cli_print(cli, "%s\n", call->operands[i]);
            inspect_print_facts(r, "  ");
        }
    }
    if (!f->json) return ST_OK;
    TRY(text_add(&list, "]\n"));
    cli_print_text(cli, &list);
    return ST_OK;
}

static status inspect(cli_context *cli, const cli_call *call)
{
    const data_flags *f = call->flags;
    data_tokenizer *t = NULL;
    if (f->tokenizer != NULL) TRY(data_tokenizer_open(cli->h, cli->a, f->tokenizer, &t));
    if (t != NULL) cli_warn_unapplied(cli, t);
    if (t != NULL && f->special_tokens == RUN_SPECIAL_TEXT) data_tokenizer_set_flags(t, 0);
    const status st = inspect_all(cli, call, t);
    data_tokenizer_close(t);
    return st;
}

// ---- pack ---------------------------------------------------------------------------------------

typedef struct packing {
    cli_context *cli;
    const char *folder;
    data_tokenizer *tokenizer;
    bool skips;    // lines that cannot be read
    char **shards; // [text]
    int64_t count;
    int64_t begin_ns, shown_ns;
    int64_t documents, tokens;
} packing;

static status pack_progress(void *context, const char *path, int64_t done, int64_t all)
{
    static const int64_t interval_ns = 100000000;
    packing *p = context;
    char have[32], whole[32], speed[32];
    const int64_t now = p->cli->h->api->monotonic_ns(p->cli->h);
    if (!p->cli->live || now - p->shown_ns < interval_ns) return ST_OK;
    p->shown_ns = now;
    const double seconds = (double)(now - p->begin_ns) / 1e9;
    cli_print(p->cli, "\r%.30s  %s of %s  %s/s\033[K", path_base_name(path),
              text_bytes_human(done, have), text_bytes_human(all, whole),
              text_bytes_human((int64_t)((double)done / seconds), speed));
    cli_push(p->cli);
    return ST_OK;
}

static status pack_skipped(void *context, const char *path, int64_t lines, const char *first)
{
    packing *p = context;
    cli_warn(p->cli, "%s: skipped %lld line%s; the first: %s", path, (long long)lines,
             text_plural(lines, "s"), first);
    return ST_OK;
}

static status file_hash(const host *h, const char *path, hash128 *out)
{
    enum { PIECE = 1 << 20 };
    file *f = NULL;
    int64_t count = 0;
    TRY(h->api->file_open(h, path, FILE_READ, &f));
    hash_stream *hash = hash_begin();
    void *piece = malloc(PIECE);
    status st = h->api->file_size(f, &count);
    if (hash == NULL || piece == NULL) st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    for (int64_t at = 0; st == ST_OK && at < count; at += PIECE) {
        const int64_t n = min_i64(PIECE, count - at);
        st = h->api->file_read(f, at, piece, n);
        if (st == ST_OK) hash_add(hash, piece, n);
    }
    free(piece);
    if (hash != NULL) *out = hash_end(hash);
    (void)h->api->file_close(f); // the file was only read
    return st;
}

static status pack_one(packing *p, const char *path)
{
    const data_progress progress = {
        .report = pack_progress, .skipped = pack_skipped, .malformed = NULL, .context = p};
    const data_prepare_options options = {
        .cache_folder = p->folder, .skips_bad_lines = p->skips, .progress = &progress};
    cli_context *cli = p->cli;
    bool is_tokens = false;
    TRY(data_path_check(path));
    TRY(data_tokens_probe(cli->h, path, &is_tokens));
    if (is_tokens) {
        return fail(ST_USAGE, "%s is a token file already; data.train accepts it unchanged", path);
    }
    p->begin_ns = cli->h->api->monotonic_ns(cli->h);
    const status st =
        data_prepare(cli->h, cli->a, p->tokenizer, path, &options, &p->shards[p->count]);
    if (cli->live) cli_print(cli, "\r\033[K");
    TRY(st);
    p->count++;
    return ST_OK;
}

static status pack_line(packing *p, const char *shard, hash_stream *all)
{
    cli_context *cli = p->cli;
    data_tokens *t = NULL;
    hash128 hash;
    char hex[33];
    TRY(data_tokens_open(cli->h, cli->a, shard, 0, &t));
    const int64_t documents = data_tokens_documents(t), tokens = data_tokens_count(t);
    data_tokens_close(t);
    TRY(file_hash(cli->h, shard, &hash));
    hash_add(all, hash128_text(hash, hex), 32);
    p->documents += documents;
    p->tokens += tokens;
    cli_print(cli, "%10lld  %14lld  %s  %s\n", (long long)documents, (long long)tokens, hex,
              path_base_name(shard));
    return ST_OK;
}

static status pack_table(packing *p)
{
    char hex[33];
    status st = ST_OK;
    hash_stream *all = hash_begin();
    if (all == NULL) return fail(ST_NO_MEMORY, "no memory for a hash");
    cli_print(p->cli, "%10s  %14s  %-32s  %s\n", "documents", "tokens", "hash", "shard");
    for (int64_t i = 0; i < p->count && st == ST_OK; i++) st = pack_line(p, p->shards[i], all);
    const hash128 hash = hash_end(all);
    TRY(st);
    cli_print(p->cli, "%10lld  %14lld  %s  all %lld\n", (long long)p->documents,
              (long long)p->tokens, hash128_text(hash, hex), (long long)p->count);
    return ST_OK;
}

// A changed text gets a new shard, and a glob would then find the old one too.
static status pack_others(packing *p)
{
    file_names names;
    int64_t others = 0;
    TRY(p->cli->h->api->path_list(p->cli->h, p->cli->a, p->folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        const size_t n = strlen(names.names[i]);
        bool is_other = n > 4 && strcmp(names.names[i] + n - 4, ".tok") == 0;
        for (int64_t k = 0; k < p->count && is_other; k++) {
            is_other = strcmp(path_base_name(p->shards[k]), names.names[i]) != 0;
        }
        if (is_other) others++;
    }
    if (others == 0) return ST_OK;
    cli_print(p->cli, "note   %s holds %lld more, of other texts or of earlier states of these\n",
              p->folder, (long long)others);
    return ST_OK;
}

static status pack_all(packing *p, const cli_call *call)
{
    const data_flags *f = call->flags;
    TRY(arena_new(p->cli->a, call->operand_count, &p->shards));
    for (int64_t i = 1; i < call->operand_count; i++) TRY(pack_one(p, call->operands[i]));
    TRY(pack_table(p));
    if (p->tokens == 0) {
        return fail(ST_DATA, "%s%s: no token in %s; a run needs a text", call->operands[1],
                    call->operand_count > 2 ? " and the files after it" : "",
                    call->operand_count > 2 ? "them" : "it");
    }
    TRY(pack_others(p));
    char *keys[2] = {NULL, NULL};
    const char *quoted[2] = {NULL, NULL};
    text folder = {.a = p->cli->a}, list = {.a = p->cli->a};
    for (const char *s = p->folder; *s != '\0'; s++) { // signs of patterns stand for themselves
        TRY(text_add(&folder, strchr("*?[", *s) != NULL ? "[%c]" : "%c", *s));
    }
    TRY(text_add(&folder, "/*.tok"));
    TRY(option_add_item(&list, folder.bytes, folder.length));
    TRY(arena_format(p->cli->a, &keys[0], "data.train=%s", list.bytes));
    TRY(arena_format(p->cli->a, &keys[1], "data.tokenizer=%s", f->tokenizer));
    for (int i = 0; i < 2; i++) TRY(text_quote(p->cli->a, keys[i], &quoted[i]));
    cli_print(p->cli, "next   trireme train CONFIG %s %s\n", quoted[0], quoted[1]);
    return ST_OK;
}

static status pack(cli_context *cli, const cli_call *call)
{
    const data_flags *f = call->flags;
    if (f->tokenizer == NULL) return fail(ST_USAGE, "data pack needs --tokenizer");
    if (f->out == NULL) return fail(ST_USAGE, "data pack needs --out, the folder for the shards");
    packing p = {.cli = cli, .folder = f->out, .skips = f->on_error == 1};
    TRY(data_tokenizer_open(cli->h, cli->a, f->tokenizer, &p.tokenizer));
    cli_warn_unapplied(cli, p.tokenizer);
    if (f->special_tokens == RUN_SPECIAL_TEXT) data_tokenizer_set_flags(p.tokenizer, 0);
    const status st = pack_all(&p, call);
    data_tokenizer_close(p.tokenizer);
    return st;
}

// ---- show ---------------------------------------------------------------------------------------

// One document's part of a sequence.
static status part_print(cli_context *cli, const data_tokenizer *t, const int32_t *ids,
                         int64_t count, data_bytes *buffer)
{
    data_decoder decoder = {.pending_count = 0};
    buffer->count = 0;
    status st = ST_OK;
    for (int64_t i = 0; i < count && st == ST_OK; i++) {
        st = data_decoder_next(&decoder, t, ids[i], 0, buffer);
    }
    if (st == ST_OK) st = data_decoder_end(&decoder, buffer);
    data_decoder_deinit(&decoder);
    TRY(st);
    data_print_visible(cli, buffer);
    cli_print(cli, "\n");
    return ST_OK;
}

static status sequence_print(cli_context *cli, const run_config *r, const train_loader *loader,
                             int64_t n, const data_rows *rows_of_one)
{
    const data_dataset *d = train_loader_dataset(loader);
    const data_place place = data_dataset_place(d, DATA_TRAIN, n);
    const int64_t seq = data_dataset_seq(d);
    const int32_t *document = rows_of_one->documents;
    data_bytes buffer = {0};
    status st = ST_OK;
    TRY(data_batch_fill(d, DATA_TRAIN, n, 1, rows_of_one));
    cli_print(cli, "---- sequence %lld: number %lld of %s, epoch %lld", (long long)n,
              (long long)place.sequence,
              data_dataset_sources(d) > 1 ? r->data.train.items[place.source] : "data.train",
              (long long)place.epoch);
    if (place.shift > 0) cli_print(cli, " (%lld tokens later)", (long long)place.shift);
    cli_print(cli, ", %d document%s\n", document[seq - 1] + 1, document[seq - 1] > 0 ? "s" : "");
    for (int64_t begin = 0, end = 0; begin < seq && st == ST_OK; begin = end) {
        while (end < seq && document[end] == document[begin]) end++;
        if (begin > 0) cli_print(cli, "-- next document\n");
        st = part_print(cli, train_loader_decoder(loader), rows_of_one->ids + begin, end - begin,
                        &buffer);
    }
    data_bytes_deinit(&buffer);
    return st;
}

static status sequences_print(cli_context *cli, const run_config *r, train_loader *loader,
                              int64_t count)
{
    char *cache = NULL;
    int32_t *cells = NULL;
    TRY(path_join(cli->a, r->run.dir, "cache", &cache));
    TRY(train_loader_prepare(loader, cache, NULL, NULL));
    const data_dataset *d = train_loader_dataset(loader);
    const int64_t seq = data_dataset_seq(d);
    TRY(arena_new(cli->a, 4 * seq, &cells));
    const data_rows one = {cells, cells + seq, cells + 2 * seq, cells + 3 * seq};
    cli_print(cli, "%lld tokens, %lld sequences of %lld   tokenizer %s   order seed %lld\n",
              (long long)data_dataset_tokens(d, DATA_TRAIN),
              (long long)data_dataset_sequences(d, DATA_TRAIN), (long long)seq,
              train_loader_tokenizer(loader), (long long)r->train.seed);
    for (int64_t n = 0; n < count; n++) TRY(sequence_print(cli, r, loader, n, &one));
    return ST_OK;
}

status data_loader_open(cli_context *cli, const cli_call *call, run_config **r,
                        train_loader **loader)
{
    config *c = NULL;
    const char *yaml = NULL;
    bool is_resolved = false;
    TRY(arena_new(cli->a, 1, r));
    TRY(cli_config_file(cli, call->operands[1], &yaml, &is_resolved));
    TRY(run_config_load(cli->h, cli->a, yaml, call->keys, call->key_count, *r, &c));
    const status st = train_loader_open(cli->h, cli->a, *r, loader);
    if (st != ST_OK) train_loader_close(*loader);
    return st;
}

static status show(cli_context *cli, const cli_call *call)
{
    const data_flags *f = call->flags;
    run_config *r = NULL;
    train_loader *loader = NULL;
    const int64_t count = f->sequences > 0 ? f->sequences : SEQUENCES_DEFAULT;
    TRY(data_loader_open(cli, call, &r, &loader));
    const bool draws = run_config_has_rollouts(r);
    const status st = draws ? ST_OK : sequences_print(cli, r, loader, count);
    train_loader_close(loader);
    return draws ? data_look(cli, call, count) : st; // it has prompts and no sequences
}

// ---- the command --------------------------------------------------------------------------------

// Refuses flags that the subcommand would ignore.
static status only(const cli_call *call, const char *name, bool tokenizer, bool out, bool is_show)
{
    const data_flags *f = call->flags;
    if (!tokenizer && f->tokenizer != NULL) {
        return fail(ST_USAGE, "data %s takes no --tokenizer; write data.tokenizer=...", name);
    }
    if (!out && f->out != NULL) return fail(ST_USAGE, "data %s takes no --out", name);
    if ((is_show || out) && f->json) return fail(ST_USAGE, "data %s takes no --json", name);
    if ((is_show || out) && f->vocab > 0) {
        return fail(ST_USAGE, "data %s takes no --vocab, which `data inspect` does", name);
    }
    if (is_show && f->special_tokens != RUN_SPECIAL_TEXT) {
        return fail(ST_USAGE, "data %s takes no --special-tokens; write data.special_tokens=...",
                    name);
    }
    if (is_show) {
        if (call->operand_count == 2) return ST_OK;
        return fail(ST_USAGE, "data %s takes one configuration", name);
    }
    if (!out && f->on_error != 0) return fail(ST_USAGE, "data %s takes no --on-error", name);
    if (f->sequences > 0) return fail(ST_USAGE, "data %s takes no --sequences", name);
    if (call->key_count == 0) return ST_OK;
    return fail(ST_USAGE, "data %s takes no keys; a file of the name \"%s\" is written after --",
                name, call->keys[0]);
}

static status run(cli_context *cli, const cli_call *call)
{
    static const char *const names[] = {"inspect", "pack", "show", "build", "trace",
                                        "audit",   "look", "keys", "review"};
    const char *name = call->operands[0];
    const data_flags *f = call->flags;
    if (strcmp(name, names[7]) == 0 && call->operand_count == 1) return data_keys(cli);
    if (call->operand_count < 2 && text_find_name(name, names, COUNT_OF(names)) >= 0) {
        return fail(ST_USAGE, "too few arguments; data %s needs a file or folder", name);
    }
    const bool is_trace = strcmp(name, names[4]) == 0;
    if (!is_trace && (f->step > 0 || f->document != NULL)) {
        return fail(ST_USAGE, "data %s takes no --%s", name, f->step > 0 ? "step" : "document");
    }
    if (is_trace) return data_trace(cli, call);
    if (strcmp(name, names[5]) == 0) {
        TRY(only(call, name, false, false, false));
        return data_audit(cli, call);
    }
    if (strcmp(name, names[3]) == 0) {
        TRY(only(call, name, false, false, true));
        return data_build(cli, call);
    }
    if (strcmp(name, names[8]) == 0) {
        TRY(only(call, name, false, false, true));
        if (f->sequences > 0) return fail(ST_USAGE, "data review takes no --sequences");
        return data_review(cli, call);
    }
    if (strcmp(name, names[0]) == 0) {
        TRY(only(call, name, true, false, false));
        return inspect(cli, call);
    }
    if (strcmp(name, names[1]) == 0) {
        TRY(only(call, name, true, true, false));
        return pack(cli, call);
    }
    if (strcmp(name, names[2]) == 0) {
        TRY(only(call, name, false, false, true));
        return show(cli, call);
    }
    if (strcmp(name, names[6]) == 0) {
        TRY(only(call, name, false, false, true));
        const int64_t count = f->sequences > 0 ? f->sequences : SEQUENCES_DEFAULT;
        bool is_corpus = false;
        TRY(corpus_folder_is(cli->h, cli->a, call->operands[1], &is_corpus));
        if (!is_corpus) return data_look(cli, call, count);
        if (call->key_count == 0) return data_dropped(cli, call->operands[1], count);
        return fail(ST_USAGE, "data look of a corpus takes no keys");
    }
    const char *near = text_nearest(name, names, COUNT_OF(names));
    return fail(ST_USAGE, "there is no \"data %s\"; %s \"data %s\"%s", name,
                near != NULL ? "did you mean" : "there are", near != NULL ? near : names[0],
                near != NULL ? "?" : ", pack, show, look, build, review, trace, audit and keys");
}

const cli_command cli_command_data = {
    .name = "data",
    .summary = "inspect data files, tokenize texts, and build corpora",
    .synopsis = "inspect FILE ... [--json] | pack FILE ... --tokenizer T --out DIR | "
                "show|look CONFIG|RUN [--sequences N] [key.path=value ...] | look CORPUS | "
                "build|review CORPUS.yaml [key.path=value ...] | "
                "trace RUN|CONFIG --step S|--document ID [--json] | audit CORPUS ... | keys",
    .about =
        "inspect: prints the format and contents of a token file or text, and reads and checks "
        "every token. pack: makes a token shard for each text or JSON-lines file (.gz and .zst "
        "too), unless the shard exists already. show: prints the first sequences of a run's "
        "order, as text. look: the same with marks around what is trained, and warnings about "
        "samples that are cut or train nothing; of a corpus, samples of the documents that each "
        "rule dropped. build: makes a corpus of shards from the sources that a file names, "
        "filtered and without repetitions; the same command continues a build that was stopped, "
        "and data.train takes its folder. review: asks about documents that filters drop, and "
        "keeps the answers for the next build. trace: lists the documents, samples or prompts that a "
        "step trains on, or the steps that train on one. audit: verifies every shard, ledger and input file of a "
        "corpus by its hash. keys: prints the keys and filters of build. train prepares texts by itself; pack prepares them in "
        "advance.",
    .examples = "  trireme data inspect corpus/*.bin\n"
                "  trireme data pack web/*.jsonl.zst --tokenizer tokenizer.json -o packed\n"
                "  trireme data show demo/config.yaml --sequences 3\n"
                "  trireme data build corpus.yaml out=corpus\n"
                "  trireme data trace run --step 100\n"
                "  trireme data audit corpus\n",
    .flags = &flags,
    .flags_bytes = sizeof(data_flags),
    .operand_min = 1,
    .operand_max = -1,
    .takes_keys = true,
    .shorts = "o=out",
    .words = "inspect, pack, show, build, review, trace, audit, look, keys",
    .run = run,
};
