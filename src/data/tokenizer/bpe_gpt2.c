// GPT-2's two files: encoder.json, a map from tokens to ids, and vocab.bpe, a merge per line, best
// first. (vocab.json and merges.txt are the same under the names of Hugging Face.)
#include "base/format/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/convert/convert.h"

#include <string.h>

static int64_t count_lines(const char *merges, int64_t bytes)
{
    int64_t lines = 1;
    for (int64_t i = 0; i < bytes; i++) lines += merges[i] == '\n';
    return lines;
}

bool merge_lines_next(merge_lines *m, const char **begin, int64_t *count)
{
    while (m->at < m->bytes) {
        const char *newline = memchr(m->text + m->at, '\n', (size_t)(m->bytes - m->at));
        *begin = m->text + m->at;
        *count = newline != NULL ? newline - *begin : m->bytes - m->at;
        m->at += *count + 1;
        m->line++;
        if (*count > 0 && (*begin)[*count - 1] == '\r') (*count)--;
        const bool is_version = m->line == 1 && *count >= 8 && memcmp(*begin, "#version", 8) == 0;
        if (*count > 0 && !is_version) return true;
    }
    return false;
}

static status read_merges(bpe_builder *b, const char *merges, int64_t bytes, const char *path)
{
    TRY(bpe_build_merges_begin(b, count_lines(merges, bytes)));
    merge_lines m = {.text = merges, .bytes = bytes, .at = text_mark_bytes(merges, bytes)};
    const char *begin = NULL;
    int64_t count = 0;
    while (merge_lines_next(&m, &begin, &count)) {
        const char *blank = memchr(begin, ' ', (size_t)count);
        const int64_t left = blank != NULL ? blank - begin : -1;
        const int64_t right = count - left - 1;
        if (left <= 0 || right <= 0 || memchr(blank + 1, ' ', (size_t)right) != NULL) {
            return fail(ST_DAMAGED, "%s:%lld: two tokens with a blank between them expected", path,
                        (long long)m.line);
        }
        status st = bpe_build_merge(b, begin, left, blank + 1, right);
        if (st != ST_OK) {
            note("while reading %s:%lld", path, (long long)m.line);
            return st;
        }
    }
    return ST_OK;
}

// The two files do not say how texts are split. Only classes that split as GPT-2 does may stand in
// tokenizer_config.json.
static status check_class(const char *path, const json *config)
{
    static const char *const classes[] = {"GPT2",    "Roberta",    "Bart",
                                          "CodeGen", "Longformer", "LED"};
    const char *class = json_text(json_get(config, "tokenizer_class"), NULL);
    if (class == NULL) return ST_OK;
    for (int64_t i = 0; i < COUNT_OF(classes); i++) {
        const size_t n = strlen(classes[i]);
        const char *rest = class + n;
        if (strncmp(class, classes[i], n) == 0 &&
            (strcmp(rest, "Tokenizer") == 0 || strcmp(rest, "TokenizerFast") == 0)) {
            return ST_OK;
        }
    }
    return fail(ST_UNSUPPORTED,
                "%s: tokenizer_config.json names the class `%.60s`, which splits texts in a way "
                "that these files do not describe; take the model's tokenizer.json instead",
                path, class);
}

// The tokens of `added_tokens_decoder`, as a list; NULL if there is none.
static status read_added(const char *path, const json *config, json **out)
{
    static const char *const options[] = {"lstrip", "rstrip", "single_word"};
    const json *decoder = json_get(config, "added_tokens_decoder");
    const data_ids none = {0};
    data_bytes list = {0};
    *out = NULL;
    for (int64_t i = 0; i < json_count(decoder); i++) {
        const json *token = NULL;
        const char *id = json_key_at(decoder, i, &token);
        for (int64_t k = 0; k < COUNT_OF(options); k++) {
            if (!json_bool(json_get(token, options[k]), false)) continue;
            return fail(ST_UNSUPPORTED,
                        "%s: added token %s with `%s` is not supported with these files; take the "
                        "model's tokenizer.json instead",
                        path, id, options[k]);
        }
    }
    if (json_count(decoder) == 0) return ST_OK;
    status st = convert_put(&list, "[");
    if (st == ST_OK) st = convert_put_decoder(&list, path, decoder, &none, true);
    if (st == ST_OK) st = convert_put(&list, "]");
    if (st == ST_OK) st = json_parse(list.items, list.count, path, out);
    data_bytes_deinit(&list);
    return st;
}

static status place_added(bpe_builder *b, const json *added)
{
    for (int64_t i = 0; i < json_count(added); i++) {
        const json *token = json_at(added, i), *content = json_get(token, "content");
        TRY(bpe_build_added(b, (int32_t)json_int(json_get(token, "id"), -1), json_text(content, ""),
                            json_text_bytes(content),
                            json_bool(json_get(token, "special"), false)));
    }
    return ST_OK;
}

static status build(const host *h, bpe_builder *b, const json *vocab, const char *merges_path,
                    const json *config, const json *added, data_tokenizer **out)
{
    static const char eot[] = "<|endoftext|>";
    TRY(bpe_build_tokens(b, vocab, added));
    b->vocab->add_prefix_space = json_bool(json_get(config, "add_prefix_space"), false);
    char *merges = NULL;
    int64_t bytes = 0;
    arena *scratch = NULL;
    TRY(arena_create("merges", 0, &scratch));
    status st = host_read_own(h, scratch, merges_path, TOKENIZER_FILE_MAX, &merges, &bytes);
    if (st == ST_OK) st = read_merges(b, merges, bytes, merges_path);
    arena_destroy(scratch);
    TRY(st);
    if (added != NULL) {
        TRY(place_added(b, added));
        return bpe_build_finish(b, tokenizer_config_eot(config), out);
    }
    // These files do not mark special tokens; GPT-2 has this one.
    const int64_t id = json_int(json_get(vocab, eot), -1);
    if (id >= 0) TRY(bpe_build_added(b, (int32_t)id, eot, (int64_t)strlen(eot), true));
    return bpe_build_finish(b, eot, out);
}

static status open_class(const host *h, arena *a, const char *vocab_path, const char *merges_path,
                         const json *config, int64_t row, data_tokenizer **out)
{
    arena *scratch = NULL;
    char *vocab = NULL, *merges = NULL;
    data_bytes made = {0};
    convert_files f = {.vocab_path = vocab_path, .merges_path = merges_path};
    TRY(arena_create("tokenizer files", 0, &scratch));
    status st = host_read_own(h, scratch, vocab_path, TOKENIZER_FILE_MAX, &vocab, &f.vocab_bytes);
    if (st == ST_OK) {
        st = host_read_own(h, scratch, merges_path, TOKENIZER_FILE_MAX, &merges, &f.merges_bytes);
    }
    f.vocab = vocab;
    f.merges = merges;
    if (st == ST_OK) st = convert_pair(&f, config, row, &made);
    arena_destroy(scratch);
    if (st == ST_OK) {
        st = data_tokenizer_open_made(a, vocab_path, &made, tokenizer_config_eot(config), out);
    }
    data_bytes_deinit(&made);
    return st;
}

status data_tokenizer_open_gpt2(const host *h, arena *a, const char *vocab_path,
                                const char *merges_path, data_tokenizer **out)
{
    json *vocab = NULL, *config = NULL, *added = NULL;
    bpe_builder b = {.hash = NULL};
    int64_t row = 0;
    status st = tokenizer_config_read(h, a, vocab_path, &config);
    if (st == ST_OK && convert_pair_knows(config, &row)) {
        st = open_class(h, a, vocab_path, merges_path, config, row, out);
        json_free(config);
        return st;
    }
    if (st == ST_OK) st = check_class(vocab_path, config);
    if (st == ST_OK) st = read_added(vocab_path, config, &added);
    if (st == ST_OK) st = json_read(h, vocab_path, TOKENIZER_FILE_MAX, &vocab);
    if (st == ST_OK) st = bpe_build_begin(&b, a, vocab_path);
    if (st == ST_OK) st = build(h, &b, vocab, merges_path, config, added, out);
    bpe_build_abandon(&b);
    json_free(vocab);
    json_free(config);
    json_free(added);
    return st;
}
