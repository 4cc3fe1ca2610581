// Finds documents whose text is equal to that of an earlier one, from the hashes alone.
//
// A table maps each hash to the first document that has it. If the table of all documents would not
// fit in `memory`, the hashes are read several times, and each pass looks at one part of them.
#include "data/corpus/dedup.h"
#include "base/fault.h"
#include "data/corpus/cuts.h"

#include <stdlib.h>
#include <string.h>

status dedup_table_init(dedup_table *t, int64_t documents, int64_t memory_bytes)
{
    enum { ENTRIES_MIN = 1024 };
    const int64_t wanted = documents + documents / 2 + ENTRIES_MIN;
    const int64_t most = max_i64(ENTRIES_MIN, memory_bytes / (int64_t)sizeof(dedup_entry));
    *t = (dedup_table){.passes = (wanted + most - 1) / most};
    t->capacity = (wanted + t->passes - 1) / t->passes;
    t->entries = malloc((size_t)t->capacity * sizeof(*t->entries));
    if (t->entries != NULL) return ST_OK;
    return fail(ST_NO_MEMORY, "no memory for a table of %lld hashes; set memory to less",
                (long long)t->capacity);
}

void dedup_table_deinit(dedup_table *t)
{
    free(t->entries);
    t->entries = NULL;
}

void dedup_table_clear(dedup_table *t)
{
    memset(t->entries, 0, (size_t)t->capacity * sizeof(*t->entries));
    t->count = 0;
}

// The high word decides the pass, and the low word the place, so each pass uses the whole table.
bool dedup_table_takes(const dedup_table *t, hash128 hash, int64_t pass)
{
    return (int64_t)(hash.high % (uint64_t)t->passes) == pass;
}

status dedup_table_find(dedup_table *t, hash128 hash, int64_t document, int64_t *first)
{
    int64_t at = (int64_t)(hash.low % (uint64_t)t->capacity);
    for (int64_t i = 0; i < t->capacity; i++) {
        dedup_entry *e = &t->entries[at];
        if (e->document == 0) {
            if (t->count + 1 == t->capacity) break;
            *e = (dedup_entry){.hash = hash, .document = document + 1};
            t->count++;
            *first = document;
            return ST_OK;
        }
        if (e->hash.low == hash.low && e->hash.high == hash.high) {
            *first = e->document - 1;
            return ST_OK;
        }
        at = at + 1 == t->capacity ? 0 : at + 1;
    }
    return fail(ST_NO_MEMORY, "a table of %lld hashes is full; set memory to more",
                (long long)t->capacity);
}

static status frame_exact(build *b, dedup_table *t, int64_t pass, const spill_frame *frame,
                          const hash128 *hashes)
{
    for (int64_t i = 0; i < frame->documents; i++) {
        const int64_t document = frame->first + i;
        int64_t first = 0;
        if (!dedup_table_takes(t, hashes[i], pass)) continue;
        TRY(dedup_table_find(t, hashes[i], document, &first));
        if (first != document) b->fates[document] = FATE_EXACT;
    }
    return ST_OK;
}

static status file_exact(build *b, dedup_table *t, int64_t pass, const spill_file *f,
                         hash128 *hashes)
{
    file *index = NULL;
    if (f->frame_count == 0) return ST_OK;
    TRY(b->h->api->file_open(b->h, f->index_path, FILE_READ_OWN, &index));
    status st = ST_OK;
    for (int64_t k = 0; k < f->frame_count && st == ST_OK; k++) {
        st = spill_column_read(index, b->h, f, k, SPILL_HASHES, 0, hashes);
        if (st == ST_OK) st = frame_exact(b, t, pass, &f->frames[k], hashes);
    }
    (void)b->h->api->file_close(index); // the file was only read
    return st;
}

static status find_exact(build *b)
{
    dedup_table t;
    hash128 *hashes = NULL;
    TRY(arena_new(b->a, SPILL_BATCH_DOCUMENTS, &hashes));
    TRY(dedup_table_init(&t, b->documents, b->c->memory_bytes));
    status st = ST_OK;
    b->done = 0;
    b->all = t.passes * b->file_count;
    for (int64_t pass = 0; pass < t.passes && st == ST_OK; pass++) {
        dedup_table_clear(&t);
        for (int64_t i = 0; i < b->file_count && st == ST_OK; i++) {
            st = file_exact(b, &t, pass, &b->files[i].spill, hashes);
            b->done++;
            if (st == ST_OK) st = build_report(b, CORPUS_DEDUP);
        }
    }
    dedup_table_deinit(&t);
    return st;
}

status build_dedup(build *b)
{
    TRY(fault_point("corpus.dedup"));
    TRY(arena_new(b->a, b->documents, &b->fates));
    if (b->documents == 0) return ST_OK;
    if (b->c->dedup.exact) TRY(find_exact(b));
    if (b->c->dedup.has_near) TRY(dedup_near(b));
    if (b->c->dedup.lines) TRY(dedup_lines(b));
    if (b->c->dedup.substring > 0) TRY(dedup_substrings(b));
    return cuts_finish(b);
}
