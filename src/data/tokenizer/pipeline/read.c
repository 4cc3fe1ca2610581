// Makes a pipeline from a tokenizer.json: its steps, its vocabulary and its added tokens.
#include "data/tokenizer/pipeline/pipeline.h"

#include <stdio.h>
#include <string.h>

// Everything in a step can change what the tokenizer does, so all of it is part of its hash. The
// depth is that of the JSON, at most 64.
static void hash_json(hash_stream *hash, const json *value)
{
    const int32_t kind = (int32_t)json_kind_of(value);
    const int64_t count = json_count(value);
    hash_add(hash, &kind, sizeof(kind));
    if (kind == JSON_TEXT) {
        hash_add(hash, json_text(value, ""), json_text_bytes(value) + 1);
    } else if (kind == JSON_LIST || kind == JSON_MAP) {
        hash_add(hash, &count, sizeof(count));
        for (int64_t i = 0; i < count; i++) {
            const json *member = kind == JSON_LIST ? json_at(value, i) : NULL;
            if (kind == JSON_MAP) {
                const char *key = json_key_at(value, i, &member);
                hash_add(hash, key, (int64_t)strlen(key) + 1);
            }
            hash_json(hash, member);
        }
    } else if (kind != JSON_NONE) {
        const double number = json_real(value, json_bool(value, false) ? 1.0 : 0.0);
        hash_add(hash, &number, sizeof(number));
    }
}

// ---- added tokens -------------------------------------------------------------------------------

static status add_one(pipeline *p, bpe_builder *b, const json *item, int32_t order)
{
    const json *content = json_get(item, "content");
    const char *text = json_text(content, "");
    int64_t count = json_text_bytes(content);
    const int32_t id = (int32_t)json_int(json_get(item, "id"), -1);
    const bool special = json_bool(json_get(item, "special"), false);
    if (json_bool(json_get(item, "single_word"), false)) {
        return fail(ST_UNSUPPORTED, "%s: added token \"%.80s\" has `single_word`, not supported",
                    b->path, text);
    }
    const int32_t known = bpe_find(p->vocab, text, count);
    if (known >= 0 && known != id) {
        return fail(ST_DAMAGED, "%s: added token \"%.80s\" has id %d, but %d in the vocabulary",
                    b->path, text, id, known);
    }
    TRY(bpe_build_added(b, id, text, count, special));
    const bool normalized = json_bool(json_get(item, "normalized"), !special);
    if (normalized) TRY(pipeline_normalize(p, text, count, &text, &count));
    if (count == 0) {
        return fail(ST_UNSUPPORTED,
                    "%s: added token %d becomes empty in the normalizer, which is not supported",
                    b->path, id);
    }
    char *copy = NULL;
    TRY(arena_new(b->a, count + 1, &copy));
    memcpy(copy, text, (size_t)count);
    added_list *list = &p->added[normalized ? 1 : 0];
    list->items[list->count++] = (added_token){.bytes = copy,
                                               .count = count,
                                               .id = id,
                                               .order = order,
                                               .special = special,
                                               .left = json_bool(json_get(item, "lstrip"), false),
                                               .right = json_bool(json_get(item, "rstrip"), false)};
    return ST_OK;
}

static status read_added(pipeline *p, bpe_builder *b, const json *added)
{
    const int64_t count = json_count(added);
    for (int i = 0; i < 2; i++) TRY(arena_new(b->a, count + 1, &p->added[i].items));
    for (int64_t i = 0; i < count; i++) TRY(add_one(p, b, json_at(added, i), (int32_t)i));
    return ST_OK;
}

// The end-of-text token counts as special, whatever the file calls it (see bpe_build.c).
static void order_added(pipeline *p, int32_t eot)
{
    for (int i = 0; i < 2; i++) {
        added_list *list = &p->added[i];
        for (int64_t k = 0; k < list->count; k++) {
            if (list->items[k].id == eot) list->items[k].special = true;
        }
        pipeline_order_added(list);
    }
}

// ---- the model ----------------------------------------------------------------------------------

static status read_unknown(pipeline *p, const bpe_builder *b, const json *model)
{
    const json *unknown = json_get(model, "unk_token");
    p->unknown = -1;
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", (unsigned)byte);
        p->byte_tokens[byte] = bpe_find(p->vocab, text, 6);
    }
    if (json_kind_of(unknown) != JSON_TEXT) return ST_OK;
    p->unknown = bpe_find(p->vocab, json_text(unknown, ""), json_text_bytes(unknown));
    if (p->unknown >= 0) return ST_OK;
    return fail(ST_DAMAGED, "%s: `unk_token` \"%.80s\" is not in the vocabulary", b->path,
                json_text(unknown, ""));
}

static status read_model(pipeline *p, bpe_builder *b, const json *root)
{
    const json *model = json_get(root, "model");
    p->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    p->fuse_unknown = json_bool(json_get(model, "fuse_unk"), false);
    p->vocab->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    if (p->is_byte_level && p->byte_fallback) {
        return fail(ST_UNSUPPORTED,
                    "%s: model option `byte_fallback` is not supported with a byte-level "
                    "vocabulary, which has a token for each byte",
                    b->path);
    }
    b->is_text = !p->is_byte_level;
    TRY(bpe_build_tokens(b, json_get(model, "vocab"), json_get(root, "added_tokens")));
    TRY(bpe_read_merges(b, json_get(model, "merges")));
    return p->is_byte_level ? ST_OK : read_unknown(p, b, model);
}

static status build(pipeline *p, bpe_builder *b, const json *root, const char *eot_text,
                    data_tokenizer **out)
{
    static const char *const hashed[] = {"normalizer", "pre_tokenizer", "decoder", "added_tokens"};
    static const char *const options[] = {"unk_token", "fuse_unk", "byte_fallback"};
    TRY(pipeline_read_normalizers(p, b->a, b->path, json_get(root, "normalizer")));
    TRY(pipeline_read_splitters(p, b->a, b->path, json_get(root, "pre_tokenizer")));
    TRY(pipeline_read_decoders(p, b->a, b->path, json_get(root, "decoder")));
    TRY(read_model(p, b, root));
    TRY(read_added(p, b, json_get(root, "added_tokens")));
    for (int64_t i = 0; i < COUNT_OF(hashed); i++) hash_json(b->hash, json_get(root, hashed[i]));
    for (int64_t i = 0; i < COUNT_OF(options); i++) {
        hash_json(b->hash, json_get(json_get(root, "model"), options[i]));
    }
    TRY(bpe_build_finish(b, eot_text, out));
    data_tokenizer *t = *out;
    order_added(p, t->eot);
    t->row = &data_tokenizer_row_pipeline;
    t->pipeline = p;
    t->cuts = 0; // an expression may match across any place
    return ST_OK;
}

status pipeline_open(bpe_builder *b, const json *root, const char *eot_text, data_tokenizer **out)
{
    pipeline *p = NULL;
    TRY(arena_new(b->a, 1, &p));
    p->vocab = b->vocab;
    p->classes = b->vocab->classes;
    const status st = build(p, b, root, eot_text, out);
    if (st != ST_OK) pipeline_free(p);
    return st;
}
