// Opens the file of a tokenizer by what it holds: a tokenizer.json, a SentencePiece model or a list
// of tiktoken ranks.
#include "base/format/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/convert/convert.h"
#include "data/tokenizer/limits.h"
#include "data/tokenizer/pipeline/pattern.h"
#include "data/tokenizer/post_process.h"

#include <string.h>

status tokenizer_config_read(const host *h, arena *a, const char *path, json **out)
{
    *out = NULL;
    const int64_t folder = path_base_name(path) - path;
    char *config_path = NULL;
    TRY(arena_format(a, &config_path, "%.*stokenizer_config.json", (int)folder, path));
    file_info info;
    TRY(h->api->path_info(h, config_path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    return json_read(h, config_path, TOKENIZER_FILE_MAX, out);
}

const char *tokenizer_config_eot(const json *config)
{
    const json *eot = json_get(config, "eos_token");
    if (json_kind_of(eot) == JSON_MAP) eot = json_get(eot, "content");
    return json_text(eot, NULL);
}

// How a file is read that is, or was rewritten as, a tokenizer.json.
typedef struct reading_as {
    const char *eot_text;
    const data_ids *ranks; // NULL: none
    pattern_syntax syntax;
    bool is_made; // rewritten
} reading_as;

static status open_root(arena *a, const char *path, const json *root, const reading_as *as,
                        data_tokenizer **out)
{
    bpe_builder b;
    status st = bpe_build_begin(&b, a, path);
    b.ranks = as->ranks;
    b.syntax = (int)as->syntax;
    b.renumbers = !as->is_made;
    if (st == ST_OK) st = bpe_build_json(&b, root, as->eot_text, out);
    bpe_build_abandon(&b);
    TRY(st);
    st = post_process_read(a, path, json_get(root, "post_processor"), *out);
    if (st == ST_OK) st = limits_read(a, path, root, *out);
    if (st != ST_OK) data_tokenizer_close(*out);
    return st;
}

status data_tokenizer_open_made(arena *a, const char *path, const data_bytes *made,
                                const char *eot_text, data_tokenizer **out)
{
    json *root = NULL;
    TRY(json_parse(made->items, made->count, path, &root));
    const reading_as as = {.eot_text = eot_text, .syntax = PATTERN_ONIGURUMA, .is_made = true};
    const status st = open_root(a, path, root, &as, out);
    json_free(root);
    return st;
}

status data_tokenizer_open_text(arena *a, const char *name, const char *content, int64_t bytes,
                                data_tokenizer **out)
{
    json *root = NULL;
    TRY(json_parse(content, bytes, name, &root));
    const reading_as as = {.syntax = PATTERN_ONIGURUMA};
    const status st = open_root(a, name, root, &as, out);
    json_free(root);
    return st;
}

// The JSON file that has the name of a file of ranks, with `.json` for its ending; NULL if there is
// none.
static status read_settings(const host *h, arena *a, const char *path, json **out)
{
    const char *dot = strrchr(path_base_name(path), '.');
    const int64_t bytes = dot != NULL ? dot - path : (int64_t)strlen(path);
    char *settings = NULL;
    file_info info;
    TRY(arena_format(a, &settings, "%.*s.json", (int)bytes, path));
    TRY(h->api->path_info(h, settings, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    return json_read(h, settings, TOKENIZER_FILE_MAX, out);
}

// Other files become the tokenizer.json that describes them.
static status open_bytes(const host *h, arena *a, const char *path, const char *bytes,
                         int64_t count, const json *config, data_tokenizer **out)
{
    data_bytes made = {0};
    data_ids ranks = {0};
    json *root = NULL, *settings = NULL;
    reading_as as = {.eot_text = tokenizer_config_eot(config), .syntax = PATTERN_ONIGURUMA};
    const int64_t mark = text_mark_bytes(bytes, count);
    status st = ST_OK;
    bytes += mark;
    count -= mark;
    if (convert_is_sentencepiece(bytes, count)) {
        st = convert_sentencepiece(path, bytes, count, json_get(config, "added_tokens_decoder"),
                                   &made, &ranks);
    } else if (convert_is_tiktoken(bytes, count)) {
        as.syntax = PATTERN_RUST;
        st = read_settings(h, a, path, &settings);
        if (st == ST_OK) st = convert_tiktoken(path, bytes, count, settings, &made, &ranks);
    } else {
        st = json_parse(bytes, count, path, &root);
    }
    as.is_made = made.count > 0;
    as.ranks = ranks.count > 0 ? &ranks : NULL;
    if (st == ST_OK && as.is_made) st = json_parse(made.items, made.count, path, &root);
    data_bytes_deinit(&made);
    if (st == ST_OK) st = open_root(a, path, root, &as, out);
    json_free(root);
    json_free(settings);
    data_ids_deinit(&ranks);
    return st;
}

status data_tokenizer_open_json(const host *h, arena *a, const char *path, data_tokenizer **out)
{
    json *config = NULL;
    arena *scratch = NULL;
    char *bytes = NULL;
    int64_t count = 0;
    TRY(tokenizer_config_read(h, a, path, &config));
    status st = arena_create("tokenizer file", 0, &scratch);
    if (st == ST_OK) st = host_read_own(h, scratch, path, TOKENIZER_FILE_MAX, &bytes, &count);
    if (st == ST_OK) st = open_bytes(h, a, path, bytes, count, config, out);
    arena_destroy(scratch);
    json_free(config);
    return st;
}
