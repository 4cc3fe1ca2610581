// GPT-2's two files: encoder.json, a map from tokens to ids, and vocab.bpe, a merge per line, best
// first. (vocab.json and merges.txt are the same under the names of Hugging Face.)
#include "base/format/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe.h"

#include <string.h>

static int64_t count_lines(const char *merges, int64_t bytes)
{
    int64_t lines = 1;
    for (int64_t i = 0; i < bytes; i++) lines += merges[i] == '\n';
    return lines;
}

static status read_merges(bpe_builder *b, const char *merges, int64_t bytes, const char *path)
{
    TRY(bpe_build_merges_begin(b, count_lines(merges, bytes)));
    int64_t line = 0;
    for (int64_t at = text_mark_bytes(merges, bytes); at < bytes;) {
        const char *begin = merges + at;
        const char *newline = memchr(begin, '\n', (size_t)(bytes - at));
        int64_t count = newline != NULL ? newline - begin : bytes - at;
        at += count + 1;
        line++;
        if (count > 0 && begin[count - 1] == '\r') count--;
        if (count == 0 || (line == 1 && count >= 8 && memcmp(begin, "#version", 8) == 0)) continue;
        const char *blank = memchr(begin, ' ', (size_t)count);
        const int64_t left = blank != NULL ? blank - begin : -1;
        const int64_t right = count - left - 1;
        if (left <= 0 || right <= 0 || memchr(blank + 1, ' ', (size_t)right) != NULL) {
            return fail(ST_DAMAGED, "%s:%lld: two tokens with a blank between them expected", path,
                        (long long)line);
        }
        status st = bpe_build_merge(b, begin, left, blank + 1, right);
        if (st != ST_OK) {
            note("while reading %s:%lld", path, (long long)line);
            return st;
        }
    }
    return ST_OK;
}

static status build(const host *h, bpe_builder *b, const json *vocab, const char *merges_path,
                    data_tokenizer **out)
{
    static const char eot[] = "<|endoftext|>";
    TRY(bpe_build_tokens(b, vocab, NULL));
    char *merges = NULL;
    int64_t bytes = 0;
    arena *scratch = NULL;
    TRY(arena_create("merges", 0, &scratch));
    status st = host_read_own(h, scratch, merges_path, TOKENIZER_FILE_MAX, &merges, &bytes);
    if (st == ST_OK) st = read_merges(b, merges, bytes, merges_path);
    arena_destroy(scratch);
    TRY(st);
    // These files do not mark special tokens; GPT-2 has this one.
    const int64_t id = json_int(json_get(vocab, eot), -1);
    if (id >= 0) TRY(bpe_build_added(b, (int32_t)id, eot, (int64_t)strlen(eot), true));
    return bpe_build_finish(b, eot, out);
}

status data_tokenizer_open_gpt2(const host *h, arena *a, const char *vocab_path,
                                const char *merges_path, data_tokenizer **out)
{
    json *vocab = NULL;
    TRY(json_read(h, vocab_path, TOKENIZER_FILE_MAX, &vocab));
    bpe_builder b;
    status st = bpe_build_begin(&b, a, vocab_path);
    if (st == ST_OK) st = build(h, &b, vocab, merges_path, out);
    bpe_build_abandon(&b);
    json_free(vocab);
    return st;
}
