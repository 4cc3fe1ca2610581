// nanoGPT's .bin: only uint16 tokens. Its meta.pkl, which may hold the vocabulary size, is a Python
// program and is never read, so the caller must know the vocabulary.
#include "data/reader.h"
#include "data/tokens/format.h"

#include <string.h>

static bool fits(const token_probe *p)
{
    const size_t n = strlen(p->path);
    return n > 4 && strcmp(p->path + n - 4, ".bin") == 0;
}

// The width of the numbers in a file, by its first bytes: wider numbers than uint16 have zeros
// between them, as ids are small. Such a file would be read as twice as many tokens.
static const char *wider_type(const uint16_t *head, int64_t count)
{
    int64_t filled[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < count; i++) filled[i % 4] += head[i] != 0 ? 1 : 0;
    if (count < 32 || filled[0] < count / 8 || filled[1] + filled[3] > 0) return NULL;
    return filled[2] == 0 ? "int64" : "uint32";
}

#define SAVE_TOKENS                                                                          \
    "save its tokens as uint16 (numpy: astype(numpy.uint16).tofile) or, above 65,535, as a " \
    "shard of this program (trireme data pack) or of llm.c"

static status check_width(const data_tokens *t)
{
    enum { HEAD_TOKENS = 4096 };
    uint16_t head[HEAD_TOKENS] = {0};
    const int64_t count = min_i64(t->count, HEAD_TOKENS);
    if (count > 0) TRY(t->h->api->file_read(t->f, 0, head, 2 * count));
    TRY(data_tokens_check(t->path, (const uint8_t *)head, 2 * count));
    const char *wider = wider_type(head, count);
    if (wider != NULL) {
        return fail(
            ST_DATA,
            "%s: holds %s numbers, but a .bin file without a header holds uint16 tokens; " SAVE_TOKENS,
            t->path, wider);
    }
    if (t->vocab <= UINT16_MAX + 1) return ST_OK;
    return fail(ST_DATA,
                "%s: a .bin file without a header holds uint16 tokens, which cannot name the "
                "tokenizer's %lld; " SAVE_TOKENS,
                t->path, (long long)t->vocab);
}

static status open_nanogpt(data_tokens *t, arena *a, const token_probe *p)
{
    (void)a;
    if (t->vocab == 0) {
        return fail(ST_DATA,
                    "%s: a token file without a header does not tell its vocabulary; give "
                    "data.tokenizer or model.vocab",
                    t->path);
    }
    if (p->info.bytes % 2 != 0) {
        return fail(ST_DAMAGED, "%s: %lld bytes, but tokens of 2 bytes each expected", t->path,
                    (long long)p->info.bytes);
    }
    t->type = TOKEN_U16;
    t->count = p->info.bytes / 2;
    TRY(token_file_open(t, t->path));
    TRY(token_file_check_size(t, p->info.bytes));
    return check_width(t);
}

const data_token_format data_token_format_nanogpt = {
    .name = "nanogpt", .fits = fits, .open = open_nanogpt};
