// Repeated lines: every line that an earlier document, or an earlier line of the same one, has is
// cut (Wenzek et al. 2020, CCNet, arXiv:1911.00359, do so with paragraphs).
//
// A table holds 64-bit hashes of lines, without the blanks around them. If the table of all lines
// does not fit in `memory`, the texts are read several times, and each pass looks at one part of
// the hashes. Two of n different lines share a hash with probability n^2 / 2^65.
#include "data/corpus/cuts.h"

#include <stdlib.h>
#include <string.h>

typedef struct line_set {
    uint64_t *hashes; // 0: free
    int64_t capacity, count;
} line_set;

typedef struct line_pass {
    build *b;
    line_set set;
    int64_t lines; // of the first sweep, which counts
    int64_t pass, passes;
    cut_run *run; // NULL: the first sweep
} line_pass;

// True if the hash was there; adds it otherwise.
static bool set_meet(line_set *s, uint64_t hash)
{
    uint64_t slot = hash % (uint64_t)s->capacity;
    while (s->hashes[slot] != 0) {
        if (s->hashes[slot] == hash) return true;
        slot = slot + 1 == (uint64_t)s->capacity ? 0 : slot + 1;
    }
    s->hashes[slot] = hash;
    s->count++;
    ASSERT(s->count < s->capacity);
    return false;
}

// Characters between the blanks around a line, and their bytes.
static int64_t trim(const char *line, int64_t count, int64_t *begin, int64_t *bytes)
{
    const char *first = line;
    int64_t chars = 0;
    *bytes = text_trim(&first, count);
    *begin = first - line;
    for (int64_t i = 0; i < *bytes; i++) chars += ((uint8_t)first[i] & 0xc0) != 0x80;
    return chars;
}

static status take_text(line_pass *p, int64_t document, const char *body, int64_t count)
{
    for (int64_t at = 0; at < count;) {
        const char *newline = memchr(body + at, '\n', (size_t)(count - at));
        const int64_t end = newline != NULL ? newline + 1 - body : count;
        int64_t begin = 0, bytes = 0;
        const int64_t from = at;
        at = end;
        if (trim(body + from, end - from, &begin, &bytes) < p->b->c->dedup.line_chars) continue;
        const uint64_t hash = hash64(body + from + begin, bytes, 0) | 1;
        if (p->run == NULL) {
            p->lines++;
            continue;
        }
        if ((int64_t)(hash >> 32) % p->passes != p->pass || !set_meet(&p->set, hash)) continue;
        TRY(cuts_add(p->b, p->run,
                     &(const text_cut){.document = document,
                                       .begin = (uint32_t)from,
                                       .count = (uint32_t)(end - from)}));
    }
    return ST_OK;
}

static status take_frame(void *context, int64_t file_idx, int64_t frame, const spill_batch *docs)
{
    line_pass *p = context;
    const int64_t first = p->b->files[file_idx].spill.frames[frame].first;
    for (int64_t i = 0; i < docs->count; i++) {
        const spill_document *d = &docs->documents[i];
        if (p->b->fates[first + i] != FATE_KEEP || d->text_bytes == 0) continue;
        TRY(take_text(p, first + i, docs->bytes.items + d->text_at, d->text_bytes));
    }
    return ST_OK;
}

static status one_pass(line_pass *p)
{
    TRY(cuts_begin(p->b, &p->run));
    memset(p->set.hashes, 0, (size_t)p->set.capacity * sizeof(*p->set.hashes));
    p->set.count = 0;
    const status st = cuts_each_frame(p->b, take_frame, p);
    const status ended = cuts_end(p->b, p->run);
    return st != ST_OK ? st : ended;
}

status dedup_lines(build *b)
{
    line_pass p = {.b = b};
    b->done = 0;
    b->all = 2 * b->file_count;
    TRY(cuts_each_frame(b, take_frame, &p));
    const int64_t wanted = p.lines + p.lines / 2 + 1024;
    const int64_t most = max_i64(1024, b->c->memory_bytes / (int64_t)sizeof(uint64_t));
    p.passes = (wanted + most - 1) / most;
    // A part of the hashes may be a little larger than the others.
    p.set.capacity = p.passes == 1 ? wanted : wanted / p.passes + wanted / (8 * p.passes) + 4096;
    b->all = (1 + p.passes) * b->file_count;
    p.set.hashes = malloc((size_t)p.set.capacity * sizeof(*p.set.hashes));
    if (p.set.hashes == NULL) {
        return fail(ST_NO_MEMORY, "no memory for a table of %lld lines; set memory to less",
                    (long long)p.set.capacity);
    }
    status st = ST_OK;
    for (p.pass = 0; p.pass < p.passes && st == ST_OK; p.pass++) st = one_pass(&p);
    free(p.set.hashes);
    return st;
}
