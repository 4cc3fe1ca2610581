// Reads Hugging Face's tokenizer.json. A file in GPT-2's form (byte-level BPE, no normalizer, the
// ByteLevel split) becomes a `bpe`, the fastest row; pipeline/ runs every other form. The reader
// refuses what neither knows by the name that the file gives it, because a nearly correct tokenizer
// is worse than none.
#include "base/format/json.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

static const char *type_of(const json *part)
{
    return json_text(json_get(part, "type"), "?");
}

static bool is_absent(const json *value)
{
    return json_kind_of(value) == JSON_NONE || json_kind_of(value) == JSON_NULL_VALUE;
}

static bool is_empty_text(const json *value)
{
    return is_absent(value) || json_text_bytes(value) == 0;
}

static status unsupported(const char *path, const char *what, const char *found,
                          const char *expected)
{
    return fail(ST_UNSUPPORTED, "%s: %s `%.80s` is not supported; expected %s", path, what, found,
                expected);
}

static status check_model(const char *path, const json *model)
{
    if (json_kind_of(model) != JSON_MAP) {
        return fail(ST_DAMAGED, "%s: no `model`; a Hugging Face tokenizer.json expected", path);
    }
    const char *type = json_text(json_get(model, "type"), NULL);
    if (type == NULL && json_kind_of(json_get(model, "merges")) == JSON_LIST) type = "BPE";
    if (type == NULL) return fail(ST_DAMAGED, "%s: `model` has no `type`", path);
    if (strcmp(type, "WordPiece") == 0 || strcmp(type, "Unigram") == 0 ||
        strcmp(type, "WordLevel") == 0) {
        return ST_OK;
    }
    if (strcmp(type, "BPE") != 0) {
        return unsupported(path, "model type", type, "BPE, WordPiece, WordLevel or Unigram");
    }
    if (json_real(json_get(model, "dropout"), 0.0) > 0.0) {
        return fail(ST_UNSUPPORTED,
                    "%s: model option `dropout` is not supported: it encodes a text in another way "
                    "each time; write `\"dropout\": null` into the file",
                    path);
    }
    return ST_OK;
}

// The ByteLevel split of a file in GPT-2's form; NULL for other files.
static const json *gpt2_split(const json *root)
{
    static const char *const options[] = {"single_word", "lstrip", "rstrip"};
    const json *split = json_get(root, "pre_tokenizer"), *decoder = json_get(root, "decoder");
    if (strcmp(json_text(json_get(json_get(root, "model"), "type"), "BPE"), "BPE") != 0)
        return NULL;
    if (!is_absent(json_get(root, "normalizer"))) return NULL;
    if (strcmp(type_of(split), "Sequence") == 0 &&
        json_count(json_get(split, "pretokenizers")) == 1) {
        split = json_at(json_get(split, "pretokenizers"), 0);
    }
    if (strcmp(type_of(split), "ByteLevel") != 0) return NULL;
    if (!json_bool(json_get(split, "use_regex"), true)) return NULL;
    if (!is_absent(decoder) && strcmp(type_of(decoder), "ByteLevel") != 0) return NULL;
    if (json_bool(json_get(json_get(root, "model"), "byte_fallback"), false)) return NULL;
    if (!is_empty_text(json_get(json_get(root, "model"), "end_of_word_suffix"))) return NULL;
    if (!is_empty_text(json_get(json_get(root, "model"), "continuing_subword_prefix"))) return NULL;
    const json *added = json_get(root, "added_tokens");
    for (int64_t i = 0; i < json_count(added); i++) {
        for (int64_t k = 0; k < COUNT_OF(options); k++) {
            if (json_bool(json_get(json_at(added, i), options[k]), false)) return NULL;
        }
    }
    return split;
}

// Each merge is "a b", or since 2024 ["a", "b"].
status bpe_read_merges(bpe_builder *b, const json *merges)
{
    if (json_kind_of(merges) != JSON_LIST) {
        return fail(ST_DAMAGED, "%s: `model.merges` is not a list", b->path);
    }
    const int64_t count = json_count(merges);
    TRY(bpe_build_merges_begin(b, count));
    for (int64_t i = 0; i < count; i++) {
        const json *merge = json_at(merges, i);
        if (json_kind_of(merge) == JSON_LIST && json_count(merge) == 2 &&
            json_kind_of(json_at(merge, 0)) == JSON_TEXT &&
            json_kind_of(json_at(merge, 1)) == JSON_TEXT) {
            const json *left = json_at(merge, 0), *right = json_at(merge, 1);
            TRY(bpe_build_merge(b, json_text(left, ""), json_text_bytes(left), json_text(right, ""),
                                json_text_bytes(right)));
            continue;
        }
        const char *text = json_text(merge, "");
        const int64_t bytes = json_kind_of(merge) == JSON_TEXT ? json_text_bytes(merge) : 0;
        const char *blank = bytes > 0 ? memchr(text, ' ', (size_t)bytes) : NULL;
        if (blank == NULL) {
            return fail(ST_DAMAGED, "%s: merge %lld is neither \"a b\" nor [\"a\", \"b\"]", b->path,
                        (long long)i + 1);
        }
        TRY(bpe_build_merge(b, text, blank - text, blank + 1, bytes - (blank - text) - 1));
    }
    return ST_OK;
}

static status read_added(bpe_builder *b, const json *added)
{
    for (int64_t i = 0; i < json_count(added); i++) {
        const json *item = json_at(added, i), *content = json_get(item, "content");
        TRY(bpe_build_added(b, bpe_build_added_id(b, item, i), json_text(content, ""),
                            json_text_bytes(content), json_bool(json_get(item, "special"), false)));
    }
    return ST_OK;
}

status bpe_build_json(bpe_builder *b, const json *root, const char *eot_text, data_tokenizer **out)
{
    const json *model = json_get(root, "model"), *added = json_get(root, "added_tokens");
    const json *split = gpt2_split(root);
    TRY(check_model(b->path, model));
    if (split == NULL) return pipeline_open(b, root, eot_text, out);
    b->vocab->add_prefix_space = json_bool(json_get(split, "add_prefix_space"), true);
    b->vocab->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    TRY(bpe_build_tokens(b, json_get(model, "vocab"), added));
    TRY(bpe_read_merges(b, json_get(model, "merges")));
    TRY(read_added(b, added));
    return bpe_build_finish(b, eot_text, out);
}
