// The post-processor of a tokenizer.json: the tokens that stand around a text. The ids within a
// text are never looked at, so all kinds come down to one list of ids with places for the text:
//
//   BertProcessing        cls TEXT sep
//   RobertaProcessing     the same, with sep before the further texts
//   TemplateProcessing    the parts of `single`, or of `pair` for two texts
//   ByteLevel             TEXT (it changes offsets alone)
//   Sequence              each one's answer is what the next gets
//
// As in the reference, a template makes a text of its own of each part, and what follows it gets
// several texts. Without the tokens to add, a template still says how often the text stands there.
#include "data/tokenizer/post_process.h"
#include "data/tokenizer/limits.h"

#include <string.h>

enum { ITEMS_MAX = 4096, DEPTH_MAX = 16 };

static status damaged(const char *path, const char *what)
{
    return fail(ST_DAMAGED, "%s: `post_processor` has %s", path, what);
}

// The file may name any id, so the reader looks at them when all are known.
static status add_id(const char *path, const json *id, data_ids *out)
{
    const int64_t value = json_int(id, -1);
    if (value < 0 || value > INT32_MAX) return damaged(path, "a token without an id");
    return data_ids_add(out, &(int32_t){(int32_t)value}, 1);
}

// Texts one after the other: ids, and where each text ends.
typedef struct texts {
    data_ids ids, ends;
} texts;

static void texts_deinit(texts *t)
{
    data_ids_deinit(&t->ids);
    data_ids_deinit(&t->ends);
}

static status end_text(const char *path, texts *t)
{
    if (t->ids.count > ITEMS_MAX || t->ends.count > ITEMS_MAX) {
        return fail(ST_UNSUPPORTED, "%s: a post_processor that adds more than %d tokens", path,
                    (int)ITEMS_MAX);
    }
    return data_ids_add(&t->ends, &(int32_t){(int32_t)t->ids.count}, 1);
}

static status add_text(const texts *from, int64_t i, data_ids *out)
{
    const int64_t begin = i > 0 ? from->ends.items[i - 1] : 0;
    const int64_t count = from->ends.items[i] - begin;
    return count > 0 ? data_ids_add(out, from->ids.items + begin, count) : ST_OK;
}

// Each text with the tokens of BertProcessing or RobertaProcessing, ["[CLS]", 101] and so on.
static status put_around(const char *path, const json *step, bool is_roberta, const texts *in,
                         texts *out)
{
    const json *cls = json_at(json_get(step, "cls"), 1), *sep = json_at(json_get(step, "sep"), 1);
    for (int64_t i = 0; i < in->ends.count; i++) {
        if (i == 0) TRY(add_id(path, cls, &out->ids));
        if (i > 0 && is_roberta) TRY(add_id(path, sep, &out->ids));
        TRY(add_text(in, i, &out->ids));
        TRY(add_id(path, sep, &out->ids));
        TRY(end_text(path, out));
    }
    return ST_OK;
}

static status put_special(const char *path, const json *step, const char *name, data_ids *out)
{
    const json *ids = json_get(json_get(json_get(step, "special_tokens"), name), "ids");
    if (json_kind_of(ids) != JSON_LIST) {
        return fail(ST_DAMAGED,
                    "%s: `post_processor` has the token \"%.80s\", which is not among its "
                    "special tokens",
                    path, name);
    }
    for (int64_t i = 0; i < json_count(ids); i++) TRY(add_id(path, json_at(ids, i), out));
    return ST_OK;
}

static status put_template(const char *path, const json *step, bool adds, const texts *in,
                           texts *out)
{
    const bool is_pair = in->ends.count == 2;
    const json *parts = json_get(step, is_pair ? "pair" : "single");
    if (in->ends.count > 2) {
        return fail(ST_UNSUPPORTED,
                    "%s: a post_processor TemplateProcessing that gets more than two texts is not "
                    "supported",
                    path);
    }
    if (json_kind_of(parts) != JSON_LIST) return damaged(path, "a template without its parts");
    for (int64_t i = 0; i < json_count(parts); i++) {
        const json *token = json_get(json_at(parts, i), "SpecialToken");
        const json *sequence = json_get(json_at(parts, i), "Sequence");
        if (token != NULL) {
            if (!adds) continue;
            TRY(put_special(path, step, json_text(json_get(token, "id"), ""), &out->ids));
        } else {
            const char *name = json_text(json_get(sequence, "id"), "");
            const bool is_second = strcmp(name, "B") == 0;
            if ((!is_second && strcmp(name, "A") != 0) || (is_second && !is_pair)) {
                return damaged(path, "a part of a template that is neither a token nor a text");
            }
            TRY(add_text(in, is_second ? 1 : 0, &out->ids));
        }
        TRY(end_text(path, out));
    }
    return ST_OK;
}

// The answer of one step takes the place of the texts that it got.
static status apply(const char *path, const json *step, bool adds, texts *all)
{
    const char *type = json_text(json_get(step, "type"), "?");
    const bool is_roberta = strcmp(type, "RobertaProcessing") == 0;
    texts made = {.ids = {0}};
    status st = ST_OK;
    if (strcmp(type, "ByteLevel") == 0) return ST_OK;
    if (strcmp(type, "TemplateProcessing") == 0) {
        st = put_template(path, step, adds, all, &made);
    } else if (is_roberta || strcmp(type, "BertProcessing") == 0) {
        if (!adds) return ST_OK;
        st = put_around(path, step, is_roberta, all, &made);
    } else {
        return fail(ST_UNSUPPORTED,
                    "%s: post_processor `%.80s` is not supported; expected TemplateProcessing, "
                    "BertProcessing, RobertaProcessing, ByteLevel or Sequence",
                    path, type);
    }
    texts_deinit(all);
    *all = made;
    return st;
}

static status apply_all(const char *path, const json *step, int depth, bool adds, texts *all)
{
    if (strcmp(json_text(json_get(step, "type"), "?"), "Sequence") != 0) {
        return apply(path, step, adds, all);
    }
    const json *steps = json_get(step, "processors");
    if (json_kind_of(steps) != JSON_LIST) return damaged(path, "a Sequence without `processors`");
    if (depth == DEPTH_MAX) return damaged(path, "too deep a nest of Sequences");
    for (int64_t i = 0; i < json_count(steps); i++) {
        TRY(apply_all(path, json_at(steps, i), depth + 1, adds, all));
    }
    return ST_OK;
}

static status read_list(arena *a, const char *path, const json *step, bool adds, post_process *out)
{
    const int32_t text = POST_PROCESS_TEXT;
    texts all = {.ids = {0}};
    int32_t *items = NULL;
    status st = data_ids_add(&all.ids, &text, 1);
    if (st == ST_OK) st = end_text(path, &all);
    if (st == ST_OK) st = apply_all(path, step, 0, adds, &all);
    if (st == ST_OK) st = arena_new(a, all.ids.count + 1, &items);
    if (st == ST_OK) {
        if (all.ids.count > 0) memcpy(items, all.ids.items, (size_t)all.ids.count * sizeof(*items));
        *out = (post_process){.items = items, .count = all.ids.count};
    }
    texts_deinit(&all);
    return st;
}

// The tokens that a step adds to a single text. A step behind one that makes several texts may add
// more, but the reference counts so.
static int64_t count_added(const json *step)
{
    const char *type = json_text(json_get(step, "type"), "?");
    const json *list = json_get(step, "processors"), *parts = json_get(step, "single");
    int64_t count = 0;
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) return 2;
    if (strcmp(type, "Sequence") == 0) { // whose depth is checked
        for (int64_t i = 0; i < json_count(list); i++) count += count_added(json_at(list, i));
    }
    if (strcmp(type, "TemplateProcessing") != 0) return count;
    for (int64_t i = 0; i < json_count(parts); i++) {
        const json *id = json_get(json_get(json_at(parts, i), "SpecialToken"), "id");
        const json *token = json_get(json_get(step, "special_tokens"), json_text(id, ""));
        count += json_count(json_get(token, "ids"));
    }
    return count;
}

status post_process_read(arena *a, const char *path, const json *step, data_tokenizer *t)
{
    post_process *all = &t->around[1];
    t->around[0] = *all = (post_process){.items = NULL};
    if (json_kind_of(step) == JSON_NONE || json_kind_of(step) == JSON_NULL_VALUE) return ST_OK;
    TRY(read_list(a, path, step, false, &t->around[0]));
    TRY(read_list(a, path, step, true, all));
    all->added = count_added(step);
    for (int64_t i = 0; i < all->count; i++) {
        if (all->items[i] >= t->vocab_size) {
            return damaged(path, "a token with an id beyond the vocabulary");
        }
    }
    return ST_OK;
}

// The ids of the text itself, cut to the file's length if the flags ask for it.
static status encode_text(data_tokenizer *t, const char *text, int64_t bytes, int flags,
                          int64_t added, data_ids *out)
{
    const int64_t first = out->count;
    TRY(t->row->encode(t, text, bytes, flags, out));
    const bool is_cut = (flags & DATA_ENCODE_TRUNCATE) != 0 && t->limits.truncates;
    return is_cut ? limits_cut(t, first, added, out) : ST_OK;
}

// A text that stands there several times is encoded once.
static status encode_around(data_tokenizer *t, const char *text, int64_t bytes, int flags,
                            data_ids *out)
{
    const post_process *p = &t->around[(flags & DATA_ENCODE_ADD) != 0 ? 1 : 0];
    int64_t first = -1, count = 0;
    if (p->items == NULL) return encode_text(t, text, bytes, flags, 0, out);
    for (int64_t i = 0; i < p->count; i++) {
        if (p->items[i] != POST_PROCESS_TEXT) {
            TRY(data_ids_add(out, &p->items[i], 1));
        } else if (first < 0) {
            first = out->count;
            TRY(encode_text(t, text, bytes, flags, p->added, out));
            count = out->count - first;
        } else {
            data_ids copy = {0};
            status st = data_ids_add(&copy, out->items + first, count);
            if (st == ST_OK) st = data_ids_add(out, copy.items, count);
            data_ids_deinit(&copy);
            TRY(st);
        }
    }
    return ST_OK;
}

status post_process_encode(data_tokenizer *t, const char *text, int64_t bytes, int flags,
                           data_ids *out)
{
    const int64_t first = out->count;
    TRY(encode_around(t, text, bytes, flags, out));
    const bool is_filled = (flags & DATA_ENCODE_PAD) != 0 && t->limits.pads;
    return is_filled ? limits_fill(t, first, out) : ST_OK;
}
