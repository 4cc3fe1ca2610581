// Fuzz entry: any bytes as an input file of a corpus, in each format and unit; what is read goes
// through all filters that need no file.
#include "data/corpus/rows.h"
#include "data/filter.h"
#include "memory_host.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DOCUMENT_BYTES = 1 << 16 };

static void set_defaults(arena *a, filter_config *c)
{
    for (int64_t i = 0; data_filters[i] != NULL; i++) {
        for (int64_t k = 0; k < data_filters[i]->row_count; k++) {
            const option *o = &data_filters[i]->rows[k];
            if (o->default_text == NULL) continue;
            ASSERT(option_set(o, a, c, o->default_text, NULL, NULL) == ST_OK);
        }
    }
    c->length.min_chars = c->gopher.min_words = c->c4.min_sentences = 0;
}

// Each filter alone, because one that drops a text would hide it from the next.
static void apply_filters(const host *h, const filter_config *c, const corpus_row *row)
{
    for (int64_t i = 0; data_filters[i] != NULL; i++) {
        const char *name = data_filters[i]->name;
        if (strcmp(name, "regex") == 0 || strcmp(name, "decontaminate") == 0) continue;
        const option_list names = {.items = &name, .count = 1};
        filter_run *r = NULL;
        filter_verdict v;
        if (filter_run_open(h, c, &names, &r) != ST_OK) continue;
        const char *bytes = row->text;
        int64_t count = row->text_bytes;
        const status st = filter_run_apply(r, false, &bytes, &count, &v);
        ASSERT(st == ST_OK || st == ST_NO_MEMORY);
        ASSERT(count >= 0 && (v.filter == NULL || v.rule >= 0));
        filter_run_close(r);
    }
}

static void read_rows(const host *h, const char *name, const corpus_rows_options *o,
                      const filter_config *c)
{
    corpus_rows *r = NULL;
    if (corpus_rows_open(h, name, o, &r) != ST_OK) return;
    for (int64_t rows = 0; rows < 4096; rows++) {
        corpus_row row;
        if (corpus_rows_next(r, &row) != ST_OK || row.kind == ROW_END) break;
        ASSERT(row.kind != ROW_NONE && row.text_bytes >= 0 && row.id_bytes >= 0);
        if (row.kind == ROW_BAD) ASSERT(row.why != NULL);
        if (row.kind != ROW_DOCUMENT) continue;
        ASSERT(row.text != NULL && row.text_bytes <= DOCUMENT_BYTES);
        if (rows < 4) apply_filters(h, c, &row);
    }
    corpus_rows_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"t.jsonl",   "t.csv",     "t.tsv",  "t.warc",
                                        "t.parquet", "t.txt",     "t.bz2",  "t.csv.xz",
                                        "t.gz",      "t.warc.gz", "t.arrow"};
    if (size < 2) return 0;
    memory_files files = {0};
    const int64_t count = (int64_t)size - 2;
    // A copy on the heap, where a read beyond the end is found.
    uint8_t *copy = malloc((size_t)count + 1);
    if (copy == NULL) return 0;
    memcpy(copy, data + 2, (size_t)count);
    const char *name = names[data[0] % COUNT_OF(names)];
    files.files[0] = (struct file){name, copy, count, NULL};
    const host h = {.api = &memory_api, .state = &files};
    const corpus_rows_options o = {.format = data[1] % 8,
                                   .unit = data[1] / 8 % 3,
                                   .text = "text",
                                   .id = "id",
                                   .document_bytes = DOCUMENT_BYTES};
    arena *a = NULL;
    filter_config *c = NULL;
    if (arena_create("fuzz", 0, &a) == ST_OK) {
        if (arena_new(a, 1, &c) == ST_OK) {
            set_defaults(a, c);
            read_rows(&h, name, &o, c);
        }
        arena_destroy(a);
    }
    free(copy);
    return 0;
}
