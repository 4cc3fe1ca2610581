// nanoGPT's .bin: only uint16 tokens. Its meta.pkl, which may hold the vocabulary size, is a Python
// program and is never read, so the caller must know the vocabulary.
#include "data/tokens/format.h"

#include <string.h>

static bool fits(const token_probe *p)
{
    const size_t n = strlen(p->path);
    return n > 4 && strcmp(p->path + n - 4, ".bin") == 0;
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
    return token_file_check_size(t, p->info.bytes);
}

const data_token_format data_token_format_nanogpt = {
    .name = "nanogpt", .fits = fits, .open = open_nanogpt};
