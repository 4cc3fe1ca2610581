// Fuzz entry: any bytes as a token file: a shard, an llm.c, nanoGPT or Megatron file (the index,
// with tokens that fit or do not), or a text in any codec and form.
#include "data/reader.h"
#include "data/tokens.h"
#include "memory_host.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mark(void *context, int64_t token)
{
    const int64_t *last = context;
    ASSERT(token > 0 && token <= *last);
}

static void read_tokens(const host *h, arena *a, const char *path, int64_t vocab)
{
    data_tokens *t = NULL;
    if (data_tokens_open(h, a, path, vocab, &t) != ST_OK) {
        ASSERT(status_exit_code(error_last()->code) == 5 || error_last()->code == ST_UNSUPPORTED);
        return;
    }
    int32_t ids[64];
    const int64_t count = data_tokens_count(t);
    for (int64_t at = 0; at < count && at < 4096; at += 64) {
        const int64_t n = min_i64(64, count - at);
        if (data_tokens_read(t, at, n, ids) != ST_OK) continue;
        for (int64_t i = 0; i < n; i++) ASSERT(ids[i] >= 0 && (vocab == 0 || ids[i] < vocab));
    }
    const int64_t last = count - 1;
    if (data_tokens_documents(t) > 0 && count > 1) {
        int64_t limit = last;
        const status st = data_tokens_boundaries(t, 0, last, mark, &limit);
        ASSERT(st == ST_OK || st == ST_DAMAGED);
    }
    const status st = data_tokens_verify(t);
    ASSERT(st == ST_OK || st == ST_DAMAGED);
    data_tokens_close(t);
}

static void read_text(const host *h, const char *path)
{
    data_documents *d = NULL;
    if (data_documents_open(h, path, true, &d) != ST_OK) return;
    int64_t sum = 0;
    for (;;) {
        data_piece piece;
        if (data_documents_next(d, &piece) != ST_OK || piece.bytes == NULL) break;
        for (int64_t i = 0; i < piece.count; i += 97) sum += piece.bytes[i];
        ASSERT(sum > INT64_MIN);
    }
    data_documents_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"t.tok",   "t.bin",    "t.idx",      "t.txt",
                                        "t.jsonl", "t.txt.gz", "t.jsonl.zst"};
    if (size < 2) return 0;
    const int64_t pick = data[0] % COUNT_OF(names);
    // A Megatron pair: the index, then data[1] bytes of tokens.
    const int64_t count = (int64_t)size - 2;
    const int64_t tokens = pick == 2 ? min_i64(count, data[1]) : 0;
    memory_files files = {0};
    // A copy on the heap, where an odd address and a read beyond the end are found.
    uint8_t *copy = malloc((size_t)(count - tokens) + 1);
    if (copy == NULL) return 0;
    memcpy(copy, data + 2, (size_t)(count - tokens));
    files.files[0] = (struct file){names[pick], copy, count - tokens, NULL};
    if (pick == 2) files.files[1] = (struct file){"t.bin", data + size - tokens, tokens, NULL};
    const host h = {.api = &memory_api, .state = &files};
    arena *a = NULL;
    if (arena_create("fuzz", 0, &a) == ST_OK) {
        if (pick < 3) {
            read_tokens(&h, a, names[pick], data[1] % 2 == 0 ? 0 : 50257);
        } else {
            read_text(&h, names[pick]);
        }
        arena_destroy(a);
    }
    free(copy);
    return 0;
}
