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
    const int32_t id = bpe_build_added_id(b, item, order);
    const bool special = json_bool(json_get(item, "special"), false);
    const int32_t known = count <= TOKENIZER_TOKEN_MAX ? bpe_build_find(b, text, count) : -1;
    if (known >= 0 && known != id) {
        return fail(ST_DAMAGED, "%s: added token \"%.80s\" has id %d, but %d in the vocabulary",
                    b->path, text, id, known);
    }
    TRY(bpe_build_added(b, id, text, count, special));
    const bool normalized = json_bool(json_get(item, "normalized"), !special);
    if (normalized) TRY(pipeline_normalize(p, text, count, 0, &text, &count));
    if (count == 0) {
        return fail(ST_UNSUPPORTED,
                    "%s: added token %d becomes empty in the normalizer, which is not supported",
                    b->path, id);
    }
    if (count > TOKENIZER_TOKEN_MAX) {
        return fail(ST_UNSUPPORTED, "%s: added token %d has %lld bytes after the normalizer",
                    b->path, id, (long long)count);
    }
    // The reference decodes such a token to its normalized text.
    if (normalized) TRY(bpe_build_respell(b, id, text, count));
    char *copy = NULL;
    TRY(arena_new(b->a, count + 1, &copy));
    memcpy(copy, text, (size_t)count);
    added_list *list = &p->added[normalized ? 1 : 0];
    list->items[list->count++] =
        (added_token){.bytes = copy,
                      .count = count,
                      .id = id,
                      .order = order,
                      .special = special,
                      .single_word = json_bool(json_get(item, "single_word"), false),
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

// Decoding looks for a special token by its text, so one that the normalizers change is not left
// out unless its new text is that of a special token.
static bool is_special_text(const bpe *v, const added_token *a)
{
    for (int64_t i = 0; i < v->added_count; i++) {
        const bpe_added *other = &v->added[i];
        if (other->special && other->count == a->count &&
            memcmp(other->bytes, a->bytes, (size_t)a->count) == 0) {
            return true;
        }
    }
    return false;
}

// The end-of-text token counts as special, whatever the file calls it (see bpe_build.c).
static void order_added(pipeline *p, int32_t eot)
{
    for (int i = 0; i < 2; i++) {
        added_list *list = &p->added[i];
        for (int64_t k = 0; k < list->count; k++) {
            added_token *a = &list->items[k];
            if (a->id == eot) a->special = true;
            if (a->special && !is_special_text(p->vocab, a)) {
                p->vocab->shown[a->id].flags &= ~BPE_SPECIAL;
            }
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
    const bool needs = p->model == MODEL_WORDPIECE || p->model == MODEL_WORDLEVEL;
    if (needs && json_kind_of(unknown) != JSON_TEXT) {
        return fail(ST_DAMAGED, "%s: a %s model has no `unk_token`", b->path,
                    json_text(json_get(model, "type"), "?"));
    }
    if (p->model == MODEL_UNIGRAM || json_kind_of(unknown) != JSON_TEXT) return ST_OK;
    p->unknown = bpe_find(p->vocab, json_text(unknown, ""), json_text_bytes(unknown));
    if (p->unknown >= 0) return ST_OK;
    return fail(ST_DAMAGED, "%s: `unk_token` \"%.80s\" is not in the vocabulary", b->path,
                json_text(unknown, ""));
}

static status read_wordpiece(pipeline *p, const bpe_builder *b, const json *model)
{
    enum { CHARACTERS_DEFAULT = 100, CHARACTERS_MAX = 10000 };
    p->prefix = "##";
    p->prefix_bytes = 2;
    if (json_get(model, "continuing_subword_prefix") != NULL) {
        TRY(pipeline_read_text(b->a, b->path, model, "continuing_subword_prefix", &p->prefix,
                               &p->prefix_bytes));
    }
    p->characters_max = json_int(json_get(model, "max_input_chars_per_word"), CHARACTERS_DEFAULT);
    if (p->characters_max >= 0 && p->characters_max <= CHARACTERS_MAX) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: `max_input_chars_per_word` %lld is not supported; expected 0 "
                "to %d",
                b->path, (long long)p->characters_max, (int)CHARACTERS_MAX);
}

static status read_unigram(pipeline *p, bpe_builder *b, const json *model)
{
    const json *vocab = json_get(model, "vocab");
    const int64_t count = json_count(vocab);
    TRY(arena_new(b->a, p->vocab->tokens_count, &p->scores));
    for (int64_t i = 0; i < count; i++) {
        const json *score = json_at(json_at(vocab, i), 1);
        const json_kind kind = json_kind_of(score);
        const bpe_token *token = &p->vocab->tokens[i];
        if (kind != JSON_REAL && kind != JSON_INT) {
            return fail(ST_DAMAGED, "%s: token %lld has no score", b->path, (long long)i);
        }
        if (token->count > 0 && bpe_find(p->vocab, token->bytes, token->count) != (int32_t)i) {
            return fail(ST_DAMAGED, "%s: two tokens have the text of token %lld", b->path,
                        (long long)i);
        }
        p->scores[i] = json_real(score, 0.0);
        p->lowest_score = i == 0 || p->scores[i] < p->lowest_score ? p->scores[i] : p->lowest_score;
        TRY(pipeline_tree_add(&p->tree, token->bytes, token->count, (int32_t)i));
        hash_add(b->hash, &p->scores[i], sizeof(p->scores[i]));
    }
    const json *unknown = json_get(model, "unk_id");
    if (json_kind_of(unknown) == JSON_NONE || json_kind_of(unknown) == JSON_NULL_VALUE) {
        return ST_OK;
    }
    const int64_t id = json_int(unknown, -1);
    if (id < 0 || id >= count) {
        return fail(ST_DAMAGED, "%s: `unk_id` %lld is not in the vocabulary", b->path,
                    (long long)id);
    }
    p->unknown = (int32_t)id;
    return ST_OK;
}

static void read_kind(pipeline *p, const json *model)
{
    const char *type = json_text(json_get(model, "type"), "BPE");
    p->model = strcmp(type, "WordPiece") == 0   ? MODEL_WORDPIECE
               : strcmp(type, "Unigram") == 0   ? MODEL_UNIGRAM
               : strcmp(type, "WordLevel") == 0 ? MODEL_WORDLEVEL
                                                : MODEL_BPE;
}

static status read_model(pipeline *p, bpe_builder *b, const json *root)
{
    const json *model = json_get(root, "model");
    read_kind(p, model);
    p->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    p->fuse_unknown = json_bool(json_get(model, "fuse_unk"), false);
    p->vocab->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    b->is_text = !p->is_byte_level;
    TRY(bpe_build_tokens(b, json_get(model, "vocab"), json_get(root, "added_tokens")));
    const json *suffix = json_get(model, "end_of_word_suffix");
    if (p->model == MODEL_BPE) {
        TRY(bpe_build_prefix(b, json_get(model, "continuing_subword_prefix")));
    }
    if (p->model == MODEL_BPE && json_text_bytes(suffix) > 0) {
        TRY(bpe_build_suffix(b, json_text(suffix, ""), json_text_bytes(suffix)));
    }
    if (p->model == MODEL_BPE && b->ranks != NULL) {
        TRY(bpe_build_ranked_merges(b));
    } else if (p->model == MODEL_BPE) {
        TRY(bpe_read_merges(b, json_get(model, "merges")));
    } else {
        TRY(bpe_build_merges_begin(b, 0));
    }
    if (p->is_byte_level) return ST_OK;
    pipeline_use_cache(p);
    TRY(read_unknown(p, b, model));
    if (p->model == MODEL_UNIGRAM) return read_unigram(p, b, model);
    if (p->model == MODEL_BPE) pipeline_note_joins(p);
    return p->model == MODEL_WORDPIECE ? read_wordpiece(p, b, model) : ST_OK;
}

static status build(pipeline *p, bpe_builder *b, const json *root, const char *eot_text,
                    data_tokenizer **out)
{
    static const char *const hashed[] = {"normalizer", "pre_tokenizer", "decoder", "added_tokens"};
    static const char *const options[] = {"type",
                                          "unk_token",
                                          "unk_id",
                                          "fuse_unk",
                                          "byte_fallback",
                                          "continuing_subword_prefix",
                                          "max_input_chars_per_word"};
    TRY(pipeline_read_normalizers(p, b->a, b->path, json_get(root, "normalizer")));
    TRY(pipeline_read_splitters(p, b->a, b->path, json_get(root, "pre_tokenizer"),
                                json_get(root, "model")));
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
    t->joins = p->is_byte_level && pipeline_joins_bytes(p);
    t->cuts = pipeline_cuts(p);
    return ST_OK;
}

status pipeline_open(bpe_builder *b, const json *root, const char *eot_text, data_tokenizer **out)
{
    pipeline *p = NULL;
    TRY(arena_new(b->a, 1, &p));
    p->vocab = b->vocab;
    p->classes = b->vocab->classes;
    p->syntax = (pattern_syntax)b->syntax;
    const status st = build(p, b, root, eot_text, out);
    if (st != ST_OK) pipeline_free(p);
    return st;
}
