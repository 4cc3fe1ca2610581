// `tokenizer`: shows what a tokenizer does with a text (encode) and with ids (decode), and what a
// tokenizer file holds (info).
#include "base/format/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/tokenizer/tokenizer.h"
#include "data/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(tokenizer_flags, field)
static const option rows[] = {
    {.key = "tokenizer",
     .kind = OPTION_TEXT,
     .offset = AT(tokenizer),
     .help = "bytes, a tokenizer.json or a folder with one (-t)"},
    {.key = "jsonl",
     .kind = OPTION_BOOL,
     .offset = AT(jsonl),
     .default_text = "false",
     .help = "each line of standard input is an object: {\"text\": ...} or {\"ids\": [...]}"},
    {.key = "special",
     .kind = OPTION_BOOL,
     .offset = AT(special),
     .default_text = "false",
     .help = "encode recognises special tokens that are spelled in the text"},
    {.key = "add-special",
     .kind = OPTION_BOOL,
     .offset = AT(add_special),
     .default_text = "false",
     .help = "encode adds the tokens that the file puts before and after a text, such as <s>"},
    {.key = "truncate",
     .kind = OPTION_BOOL,
     .offset = AT(truncate),
     .default_text = "false",
     .help = "encode cuts each text to the length of the file's `truncation`"},
    {.key = "pad",
     .kind = OPTION_BOOL,
     .offset = AT(pad),
     .default_text = "false",
     .help = "encode fills up the ids of each text as the file's `padding` says"},
    {.key = "skip-special",
     .kind = OPTION_BOOL,
     .offset = AT(skip_special),
     .default_text = "false",
     .help = "decode leaves special tokens out of the text"},
    {.key = "out",
     .kind = OPTION_TEXT,
     .offset = AT(out),
     .help = "tokenizer.json that train writes, or a folder for it (-o)",
     .also = "output"},
    {.key = "model",
     .kind = OPTION_CHOICE,
     .offset = AT(model),
     .default_text = "bpe",
     .choices = "bpe, unigram",
     .help = "method of the tokenizer that train makes: byte-level BPE, or Unigram, whose pieces "
             "are whole characters"},
    {.key = "vocab",
     .kind = OPTION_INT,
     .offset = AT(vocab),
     .default_text = "0",
     .max = 1 << 21,
     .help = "number of tokens that train makes, the 256 bytes and special tokens among them; 0 is "
             "8192",
     .also = "vocab-size, size"},
    {.key = "split",
     .kind = OPTION_CHOICE,
     .offset = AT(split),
     .default_text = "gpt2",
     .choices = "gpt2, llama3, qwen2, o200k",
     .help = "how train splits texts into words: as this tokenizer does"},
    {.key = "pattern",
     .kind = OPTION_TEXT,
     .offset = AT(pattern),
     .help = "regular expression of the words, in place of --split",
     .also = "regex"},
    {.key = "special-token",
     .kind = OPTION_LIST,
     .offset = AT(special_tokens),
     .help = "special token of the new tokenizer; may be given several times; default "
             "<|endoftext|>; \"none\" for no token",
     .also = "special-tokens"},
    {.key = "min-frequency",
     .kind = OPTION_INT,
     .offset = AT(min_frequency),
     .default_text = "0",
     .max = 1e15,
     .help = "train makes no token of what occurs less often"},
    {.key = "max-words",
     .kind = OPTION_INT,
     .offset = AT(max_words),
     .default_text = "0",
     .max = INT32_MAX,
     .help = "different words that train keeps in memory, about 60 bytes each; beyond that the "
             "rarest are forgotten; 0 is 67,108,864"},
    {.key = "lines",
     .kind = OPTION_BOOL,
     .offset = AT(lines),
     .default_text = "false",
     .help = "train takes each line, with its newline, for a text of its own"},
    {.key = "threads",
     .kind = OPTION_INT,
     .offset = AT(threads),
     .default_text = "0",
     .max = 16,
     .help = "threads of train; 0 is one for each core; the result is the same"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// A command keeps the input's current part and scratch for the answer here.
typedef struct work {
    cli_context *cli;
    const tokenizer_flags *f;
    data_tokenizer *t;
    data_ids ids;
    data_bytes bytes;
    text quoted;
    int64_t line; // of standard input, from 1
} work;

static void print(work *w, const char *bytes, int64_t count)
{
    const text plain = {.bytes = (char *)(uintptr_t)bytes, .length = count};
    if (count > 0) cli_print_text(w->cli, &plain);
}

// ---- encode -------------------------------------------------------------------------------------

static int encode_flags(const tokenizer_flags *f)
{
    return (f->special ? DATA_ENCODE_SPECIAL : 0) | (f->add_special ? DATA_ENCODE_ADD : 0) |
           (f->truncate ? DATA_ENCODE_TRUNCATE : 0) | (f->pad ? DATA_ENCODE_PAD : 0);
}

static status encode(work *w, const char *bytes, int64_t count)
{
    w->ids.count = 0;
    TRY(data_tokenizer_encode(w->t, bytes, count, encode_flags(w->f), &w->ids));
    if (w->f->jsonl) cli_print(w->cli, "{\"ids\": [");
    for (int64_t i = 0; i < w->ids.count; i++) {
        const char *between = i == 0 ? "" : w->f->jsonl ? ", " : " ";
        cli_print(w->cli, "%s%d", between, w->ids.items[i]);
    }
    cli_print(w->cli, w->f->jsonl ? "]}\n" : "\n");
    return ST_OK;
}

static status encode_value(work *w, const json *value)
{
    if (json_kind_of(value) != JSON_TEXT) {
        return fail(ST_DATA,
                    "standard input:%lld: no text; expected an object such as {\"text\": \"...\"}",
                    (long long)w->line);
    }
    return encode(w, json_text(value, ""), json_text_bytes(value));
}

// ---- decode -------------------------------------------------------------------------------------

static status decode(work *w)
{
    const int how = w->f->skip_special ? DATA_DECODE_SKIP_SPECIAL : 0;
    data_decoder d = {.pending_count = 0};
    status st = ST_OK;
    w->bytes.count = 0;
    for (int64_t i = 0; i < w->ids.count && st == ST_OK; i++) {
        st = data_decoder_next(&d, w->t, w->ids.items[i], how, &w->bytes);
    }
    if (st == ST_OK) st = data_decoder_end(&d, &w->bytes);
    data_decoder_deinit(&d);
    return st;
}

static status id_add(work *w, int64_t id)
{
    const int64_t count = data_tokenizer_vocab_size(w->t);
    if (id >= 0 && id < count) return data_ids_add(&w->ids, &(int32_t){(int32_t)id}, 1);
    return fail(ST_DATA, "standard input:%lld: an id that is no number from 0 to %lld",
                (long long)w->line, (long long)count - 1);
}

static status decode_value(work *w, const json *value)
{
    if (json_kind_of(value) != JSON_LIST) {
        return fail(ST_DATA,
                    "standard input:%lld: no ids; expected an object such as {\"ids\": [1, 2]}",
                    (long long)w->line);
    }
    w->ids.count = 0;
    for (int64_t i = 0; i < json_count(value); i++) TRY(id_add(w, json_int(json_at(value, i), -1)));
    TRY(decode(w));
    cli_print(w->cli, "{\"text\": ");
    w->quoted.length = 0;
    TRY(cli_add_json_text(&w->quoted, w->bytes.items, w->bytes.count));
    cli_print_text(w->cli, &w->quoted);
    cli_print(w->cli, "}\n");
    return ST_OK;
}

// Ids with white space or commas between them.
static status decode_numbers(work *w, const char *bytes, int64_t count)
{
    w->ids.count = 0;
    for (int64_t at = 0; at < count;) {
        if (strchr(" \t\r\n,", bytes[at]) != NULL && bytes[at] != 0) {
            if (bytes[at++] == '\n') w->line++;
            continue;
        }
        int64_t id = 0, digits = 0;
        for (; at < count && bytes[at] >= '0' && bytes[at] <= '9' && id < INT32_MAX; digits++) {
            id = 10 * id + (bytes[at++] - '0');
        }
        TRY(id_add(w, digits > 0 ? id : -1));
    }
    TRY(decode(w));
    print(w, w->bytes.items, w->bytes.count);
    return ST_OK;
}

// ---- standard input -----------------------------------------------------------------------------

// All but the byte order mark of Windows editors.
static status all_input(data_bytes *out)
{
    char buffer[1 << 16];
    size_t got = 0;
    while ((got = fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
        if (out->count > INT32_MAX) {
            return fail(ST_DATA,
                        "standard input has more than %d bytes; give its parts as lines "
                        "with --jsonl",
                        INT32_MAX);
        }
        const int64_t mark = out->count == 0 ? text_mark_bytes(buffer, (int64_t)got) : 0;
        TRY(data_bytes_add(out, buffer + mark, (int64_t)got - mark));
    }
    return ferror(stdin) ? fail(ST_IO, "standard input cannot be read") : ST_OK;
}

static status one_line(work *w, const char *key, const char *bytes, int64_t count,
                       status (*use)(work *, const json *))
{
    json *value = NULL;
    w->line++;
    TRY(json_parse_members(bytes, count, "standard input", w->line, &key, 1, &value));
    const status st = use(w, value);
    json_free(value);
    return st;
}

// Prints the answer to each line at once, so that another program can ask line by line.
static status each_line(work *w, const char *key, status (*use)(work *, const json *))
{
    char *bytes = NULL;
    size_t capacity = 0;
    ssize_t count = 0;
    status st = ST_OK;
    errno = 0;
    while (st == ST_OK && (count = getline(&bytes, &capacity, stdin)) >= 0) {
        if (strspn(bytes, " \t\r\n") == (size_t)count) {
            w->line++; // a line without anything
            continue;
        }
        const int64_t mark = w->line == 0 ? text_mark_bytes(bytes, count) : 0;
        st = one_line(w, key, bytes + mark, count - mark, use);
        if (st == ST_OK) st = cli_flush(w->cli);
    }
    free(bytes);
    if (st == ST_OK && (ferror(stdin) || errno == ENOMEM)) {
        return fail(ST_IO, "standard input cannot be read after line %lld", (long long)w->line);
    }
    return st;
}

// Says by name what the file asks for and no flag applies; a flag without anything to apply is an
// error.
static status check_limits(const work *w)
{
    const tokenizer_flags *f = w->f;
    const char *left = data_tokenizer_unapplied(w->t, encode_flags(f));
    if (f->truncate && !data_tokenizer_has(w->t, DATA_ENCODE_TRUNCATE)) {
        return fail(ST_USAGE, "--truncate has no effect: %s has no `truncation`", f->tokenizer);
    }
    if (f->pad && !data_tokenizer_has(w->t, DATA_ENCODE_PAD)) {
        return fail(ST_USAGE, "--pad has no effect: %s has no `padding`", f->tokenizer);
    }
    if (left != NULL) {
        cli_warn(w->cli, "%s asks for %s, which only --truncate and --pad apply", f->tokenizer,
                 left);
    }
    return ST_OK;
}

static status encode_all(work *w)
{
    TRY(check_limits(w));
    if (w->f->jsonl) return each_line(w, "text", encode_value);
    data_bytes input = {0};
    status st = all_input(&input);
    if (st == ST_OK) st = encode(w, input.items, input.count);
    data_bytes_deinit(&input);
    return st;
}

static status decode_all(work *w)
{
    if (w->f->jsonl) return each_line(w, "ids", decode_value);
    data_bytes input = {0};
    w->line = 1;
    status st = all_input(&input);
    if (st == ST_OK) st = decode_numbers(w, input.items, input.count);
    data_bytes_deinit(&input);
    return st;
}

// ---- info ---------------------------------------------------------------------------------------

static status info(work *w)
{
    char hex[33];
    const data_tokenizer *t = w->t;
    const int32_t eot = data_tokenizer_eot(t);
    cli_print(w->cli, "method       %s\n", data_tokenizer_name(t));
    cli_print(w->cli, "vocabulary   %lld\n", (long long)data_tokenizer_vocab_size(t));
    if (eot >= 0) {
        cli_print(w->cli, "end of text  %d\n", eot);
    } else {
        cli_print(w->cli, "end of text  none\n");
    }
    const char *limits = data_tokenizer_unapplied(t, 0);
    if (limits != NULL) cli_print(w->cli, "asks for     %s\n", limits);
    cli_print(w->cli, "id           %s\n", hash128_text(data_tokenizer_id(t), hex));
    return ST_OK;
}

// ---- the command --------------------------------------------------------------------------------

static const struct {
    const char *name;
    status (*run)(work *w);
    bool takes_special, takes_skip, takes_lines;
} actions[] = {
    {"encode", encode_all, true, false, true},
    {"decode", decode_all, false, true, true},
    {"info", info, false, false, false},
};

static status check_flags(int64_t i, const tokenizer_flags *f)
{
    const char *name = actions[i].name;
    if (f->tokenizer == NULL) return fail(ST_USAGE, "tokenizer %s needs --tokenizer", name);
    if (f->special && !actions[i].takes_special) {
        return fail(ST_USAGE, "tokenizer %s takes no --special", name);
    }
    if (f->add_special && !actions[i].takes_special) {
        return fail(ST_USAGE, "tokenizer %s takes no --add-special", name);
    }
    if ((f->truncate || f->pad) && !actions[i].takes_special) {
        return fail(ST_USAGE, "tokenizer %s takes no --%s", name, f->truncate ? "truncate" : "pad");
    }
    if (f->skip_special && !actions[i].takes_skip) {
        return fail(ST_USAGE, "tokenizer %s takes no --skip-special", name);
    }
    if (f->jsonl && !actions[i].takes_lines) {
        return fail(ST_USAGE, "tokenizer %s takes no --jsonl", name);
    }
    return ST_OK;
}

// The flags of train do nothing elsewhere, and the others do nothing there.
static status check_train_flags(const cli_call *call, bool is_train)
{
    const tokenizer_flags *f = call->flags;
    const struct {
        const char *name;
        bool is_given, is_of_train;
    } given[] = {{"out", f->out != NULL, true},
                 {"vocab", f->vocab != 0, true},
                 {"split", f->split != 0, true},
                 {"model", f->model != 0, true},
                 {"max-words", f->max_words != 0, true},
                 {"pattern", f->pattern != NULL, true},
                 {"special-token", f->special_tokens.count > 0, true},
                 {"min-frequency", f->min_frequency != 0, true},
                 {"lines", f->lines, true},
                 {"threads", f->threads != 0, true},
                 {"tokenizer", f->tokenizer != NULL, false},
                 {"jsonl", f->jsonl, false},
                 {"special", f->special, false},
                 {"add-special", f->add_special, false},
                 {"truncate", f->truncate, false},
                 {"pad", f->pad, false},
                 {"skip-special", f->skip_special, false}};
    for (int64_t i = 0; i < COUNT_OF(given); i++) {
        if (!given[i].is_given || given[i].is_of_train == is_train) continue;
        return fail(ST_USAGE, "tokenizer %s takes no --%s", call->operands[0], given[i].name);
    }
    if (is_train || call->operand_count == 1) return ST_OK;
    return fail(ST_USAGE, "tokenizer %s takes no \"%s\"; --tokenizer names the tokenizer%s",
                call->operands[0], call->operands[1],
                strcmp(call->operands[0], "info") == 0 ? "" : ", and it reads standard input");
}

static status run(cli_context *cli, const cli_call *call)
{
    const char *names[COUNT_OF(actions) + 1];
    const char *name = call->operands[0];
    const bool is_train = strcmp(name, "train") == 0;
    names[COUNT_OF(actions)] = "train";
    if (is_train) {
        TRY(check_train_flags(call, true));
        return tokenizer_train(cli, call, call->flags);
    }
    for (int64_t i = 0; i < COUNT_OF(actions); i++) {
        names[i] = actions[i].name;
        if (strcmp(name, names[i]) != 0) continue;
        TRY(check_train_flags(call, false));
        work w = {.cli = cli, .f = call->flags, .quoted = {.a = cli->a}};
        TRY(check_flags(i, w.f));
        TRY(data_tokenizer_open(cli->h, cli->a, w.f->tokenizer, &w.t));
        const status st = actions[i].run(&w);
        data_ids_deinit(&w.ids);
        data_bytes_deinit(&w.bytes);
        data_tokenizer_close(w.t);
        return st;
    }
    const char *near = text_nearest(name, names, COUNT_OF(names));
    if (near == NULL) {
        return fail(ST_USAGE,
                    "there is no \"tokenizer %s\"; there are encode, decode, info and "
                    "train",
                    name);
    }
    return fail(ST_USAGE, "there is no \"tokenizer %s\"; did you mean \"tokenizer %s\"?", name,
                near);
}

const cli_command cli_command_tokenizer = {
    .name = "tokenizer",
    .summary = "encode texts, decode ids, show what a tokenizer file holds, train a tokenizer",
    .synopsis = "encode|decode|info -t FILE | train -o FILE TEXT...",
    .about =
        "encode: prints the ids of the text on standard input, with a space between them; "
        "special tokens in the text are text without --special. decode: prints the text of "
        "the ids on standard input. With --jsonl, each line of the input and of the output is "
        "an object: {\"text\": ...} and {\"ids\": [...]}. No token is added before or after a "
        "text without --add-special, and a file's `truncation` and `padding` are applied with "
        "--truncate and --pad alone. info: prints the method, the size of the vocabulary and the end-of-text id. "
        "train: learns a byte-level BPE, or with --model unigram a Unigram, from texts (plain, "
        "JSON lines, .gz, .zst) and writes a tokenizer.json, which Hugging Face tokenizers "
        "reads too; the merges are those of its trainer.",
    .examples = "  echo 'Some words' | trireme tokenizer encode -t tokenizer.json\n"
                "  trireme tokenizer encode -t tokenizer.json --jsonl <texts.jsonl >ids.jsonl\n"
                "  trireme tokenizer decode -t tokenizer.json --jsonl <ids.jsonl\n"
                "  trireme tokenizer info -t bytes\n"
                "  trireme tokenizer train -o tokenizer.json --vocab 8192 text.txt\n"
                "  trireme tokenizer train -o tokenizer.json --model unigram text.txt\n",
    .flags = &flags,
    .flags_bytes = sizeof(tokenizer_flags),
    .operand_min = 1,
    .operand_max = -1,
    .shorts = "t=tokenizer o=out",
    .words = "encode, decode, info, train",
    .run = run,
};
