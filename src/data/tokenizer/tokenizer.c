// Shared by all tokenizers: lists, the choice of the member by path, decoding.
#include "base/fault.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/post_process.h"

#include <stdlib.h>
#include <string.h>

static status list_grow(void **items, int64_t *capacity, int64_t wanted, int64_t item_bytes)
{
    if (wanted <= *capacity) return ST_OK;
    const int64_t grown = max_i64(wanted, max_i64(*capacity * 2, 64));
    int64_t bytes = 0;
    void *moved = size_mul(grown, item_bytes, &bytes) ? realloc(*items, (size_t)bytes) : NULL;
    if (moved == NULL) {
        return fail(ST_NO_MEMORY, "no memory for a list of %lld items", (long long)grown);
    }
    *items = moved;
    *capacity = grown;
    return ST_OK;
}

status data_ids_add(data_ids *list, const int32_t *ids, int64_t count)
{
    if (list->count + count > list->capacity) {
        void *items = list->items;
        TRY(list_grow(&items, &list->capacity, list->count + count, sizeof(int32_t)));
        list->items = items;
    }
    if (count > 0) memcpy(list->items + list->count, ids, (size_t)count * sizeof(int32_t));
    list->count += count;
    return ST_OK;
}

void data_ids_deinit(data_ids *list)
{
    free(list->items);
    *list = (data_ids){0};
}

status data_bytes_add(data_bytes *list, const void *bytes, int64_t count)
{
    if (list->count + count > list->capacity) {
        void *items = list->items;
        TRY(list_grow(&items, &list->capacity, list->count + count, 1));
        list->items = items;
    }
    if (count > 0) memcpy(list->items + list->count, bytes, (size_t)count);
    list->count += count;
    return ST_OK;
}

void data_bytes_deinit(data_bytes *list)
{
    free(list->items);
    *list = (data_bytes){0};
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// The file names of GPT-2's pair: vocabulary, merges.
static const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

// The path names one of the two files; the other has the same prefix.
static status open_pair(const host *h, arena *a, const char *path, bool *found,
                        data_tokenizer **out)
{
    *found = false;
    for (int64_t i = 0; i < COUNT_OF(pairs); i++) {
        for (int side = 0; side < 2; side++) {
            if (!ends_with(path, pairs[i][side])) continue;
            const int64_t prefix = (int64_t)(strlen(path) - strlen(pairs[i][side]));
            char *vocab = NULL, *merges = NULL;
            TRY(arena_format(a, &vocab, "%.*s%s", (int)prefix, path, pairs[i][0]));
            TRY(arena_format(a, &merges, "%.*s%s", (int)prefix, path, pairs[i][1]));
            file_info info[2];
            TRY(h->api->path_info(h, vocab, &info[0]));
            TRY(h->api->path_info(h, merges, &info[1]));
            if (info[0].kind != FILE_KIND_REGULAR || info[1].kind != FILE_KIND_REGULAR) continue;
            *found = true;
            return data_tokenizer_open_gpt2(h, a, vocab, merges, out);
        }
    }
    return ST_OK;
}

static status open_folder(const host *h, arena *a, const char *folder, data_tokenizer **out)
{
    file_names names;
    TRY(h->api->path_list(h, a, folder, &names));
    const char *model = NULL;
    char *path = NULL;
    bool found = false;
    for (int64_t i = 0; i < names.count; i++) {
        if (strcmp(names.names[i], "tokenizer.json") != 0) continue;
        TRY(path_join(a, folder, names.names[i], &path));
        return data_tokenizer_open_json(h, a, path, out);
    }
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        if (ends_with(name, ".model") || ends_with(name, ".tiktoken")) model = name;
        if (!ends_with(name, "encoder.json") && !ends_with(name, "vocab.json")) continue;
        TRY(path_join(a, folder, name, &path));
        TRY(open_pair(h, a, path, &found, out));
        if (found) return ST_OK;
    }
    if (model != NULL) {
        TRY(path_join(a, folder, model, &path));
        return data_tokenizer_open_json(h, a, path, out);
    }
    return fail(
        ST_NOT_FOUND,
        "%s: holds no tokenizer; expected tokenizer.json, tokenizer.model, NAME.tiktoken, or "
        "encoder.json and vocab.bpe, or vocab.json and merges.txt",
        folder);
}

status data_tokenizer_open(const host *h, arena *a, const char *path, data_tokenizer **out)
{
    TRY(fault_point("data.tokenizer.open"));
    if (path == NULL || path[0] == 0 || strcmp(path, "bytes") == 0) {
        return data_tokenizer_open_bytes(a, out);
    }
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND,
                    "%s: no such tokenizer; expected `bytes`, a tokenizer.json, a SentencePiece "
                    ".model, a .tiktoken file, or a folder with one or with encoder.json and "
                    "vocab.bpe",
                    path);
    }
    if (info.kind == FILE_KIND_FOLDER) return open_folder(h, a, path, out);
    bool found = false;
    TRY(open_pair(h, a, path, &found, out));
    if (found) return ST_OK;
    return data_tokenizer_open_json(h, a, path, out);
}

void data_tokenizer_close(data_tokenizer *t)
{
    if (t != NULL) t->row->close(t);
}

status data_tokenizer_clone(const data_tokenizer *t, arena *a, data_tokenizer **out)
{
    data_tokenizer *copy = NULL;
    TRY(arena_new(a, 1, &copy));
    *copy = *t;
    if (t->row->unshare != NULL) TRY(t->row->unshare(copy, a));
    *out = copy;
    return ST_OK;
}

status data_tokenizer_encode(data_tokenizer *t, const char *text, int64_t bytes, int flags,
                             data_ids *out)
{
    ASSERT(bytes >= 0);
    if (bytes > TOKENIZER_TEXT_MAX) {
        return fail(ST_DATA, "a text of %lld bytes; at most %lld can be encoded at once",
                    (long long)bytes, (long long)TOKENIZER_TEXT_MAX);
    }
    return post_process_encode(t, text, bytes, flags, out);
}

status data_tokenizer_words(data_tokenizer *t, const char *text, int64_t bytes,
                            data_take_word *take, void *context)
{
    ASSERT(t->row->words != NULL && bytes <= TOKENIZER_TEXT_MAX);
    return t->row->words(t, text, bytes, take, context);
}

static status decode_with_row(const data_tokenizer *t, const int32_t *ids, int64_t count, int flags,
                              data_bytes *out)
{
    data_decoder d = {.pending_count = 0};
    status st = ST_OK;
    for (int64_t i = 0; i < count && st == ST_OK; i++) {
        st = t->row->decode(t, &d, ids[i], flags, out);
    }
    if (st == ST_OK) st = t->row->decode_end(t, &d, out);
    data_decoder_deinit(&d);
    return st;
}

status data_tokenizer_decode(const data_tokenizer *t, const int32_t *ids, int64_t count, int flags,
                             data_bytes *out)
{
    if (t->row->decode != NULL && !t->joins) return decode_with_row(t, ids, count, flags, out);
    if (t->bpe != NULL) return bpe_decode(t->bpe, ids, count, flags, out);
    for (int64_t i = 0; i < count; i++) {
        const char *bytes = NULL;
        int64_t length = 0;
        bool special = false;
        t->row->token(t, ids[i], &bytes, &length, &special);
        if (special && (flags & DATA_DECODE_SKIP_SPECIAL) != 0) continue;
        TRY(data_bytes_add(out, bytes, length));
    }
    return ST_OK;
}

const char *data_tokenizer_name(const data_tokenizer *t)
{
    return t->row->name;
}

int64_t data_tokenizer_vocab_size(const data_tokenizer *t)
{
    return t->vocab_size;
}

int32_t data_tokenizer_eot(const data_tokenizer *t)
{
    return t->eot;
}

hash128 data_tokenizer_id(const data_tokenizer *t)
{
    return t->id;
}

int32_t data_tokenizer_find(const data_tokenizer *t, const char *text)
{
    return t->row->find(t, text);
}

int data_tokenizer_cuts(const data_tokenizer *t)
{
    return t->cuts;
}

int data_tokenizer_flags(const data_tokenizer *t)
{
    return t->flags;
}

void data_tokenizer_set_flags(data_tokenizer *t, int flags)
{
    t->flags = t->has_special ? flags : 0;
}
