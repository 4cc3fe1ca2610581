// The parts of a text that filters share. Private to this folder.
//
// To add a filter: a file with a `data_filter`, its parameters in filter_config, its row in the
// table of filter.c.
#ifndef DATA_FILTER_FAMILY_H
#define DATA_FILTER_FAMILY_H

#include "data/filter.h"

// A part of the text: a word or a line.
typedef struct filter_span {
    int32_t begin, count; // bytes
} filter_span;
typedef struct filter_spans {
    filter_span *items;
    int64_t count, capacity;
} filter_spans;

struct filter_run {
    const filter_config *c;
    const data_filter **filters;
    void **states; // [filter]: what data_filter.open made
    int64_t filter_count;
    const char *text; // the document as it is now
    int64_t count;
    data_bytes buffers[2]; // a changed text lies in one; the next change is written to the other
    int into;
    void *state; // of the filter that is applied now
    bool changed;
    bool has_words, has_lines; // of the text as it is now
    filter_spans words, lines;
    uint64_t *hashes; // [slot]: a hash and its count
    int64_t hash_slots, hash_capacity;
};

// The words, separated by white space, and the lines, without their ends; empty lines too. Borrowed
// until the text changes.
NODISCARD status filter_words(filter_run *r, const filter_spans **out);
NODISCARD status filter_lines(filter_run *r, const filter_spans **out);
// An empty buffer for a changed text, and the call that makes it the text.
data_bytes *filter_output(filter_run *r);
void filter_replace(filter_run *r);
// Characters of a text: bytes that do not continue one.
int64_t filter_chars(const char *body, int64_t count);
// Whether the bytes hold the word, in any case of ASCII letters.
bool filter_holds(const char *bytes, int64_t count, const char *word);
// Whether a line ends with one of the marks; blanks after it do not count.
bool filter_ends_with(const char *line, int64_t count, const char *const *marks,
                      int64_t mark_count);

// Forgets all hashes; up to `items` different ones may follow.
NODISCARD status filter_hashes_clear(filter_run *r, int64_t items);
// Counts a hash: how often it was there before.
int64_t filter_hashes_count(filter_run *r, uint64_t hash);

extern const data_filter data_filter_length;
extern const data_filter data_filter_repair;
extern const data_filter data_filter_language;
extern const data_filter data_filter_gopher;
extern const data_filter data_filter_repetition;
extern const data_filter data_filter_c4;
extern const data_filter data_filter_fineweb;
extern const data_filter data_filter_regex;
extern const data_filter data_filter_code;
extern const data_filter data_filter_pii;
extern const data_filter data_filter_decontaminate;
extern const data_filter data_filter_quality;

#endif
