// Filters: rules that drop a document of a corpus or change its text.
//
// A family with a file for each filter. `filters` of a build lists the names of those that apply,
// in that order; their parameters are keys that begin with the filter's name. A filter is a pure
// function of the text and of its parameters, so a build gives the same bytes on any thread.
#ifndef DATA_FILTER_H
#define DATA_FILTER_H

#include "base/format/options.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

// Scores texts with a language model: bits per byte of a text's beginning. Each thread opens one.
typedef struct filter_scorer {
    void *context;
    status (*open)(void *context, const char *model, void **out);
    // *is_known = false: the text is too short.
    status (*score)(void *opened, const char *bytes, int64_t count, double *bits, bool *is_known);
    void (*close)(void *opened);
} filter_scorer;

// Parameters of all filters, under the names of their keys.
typedef struct filter_config {
    struct {
        int64_t min_chars, max_chars, min_words, max_words;
    } length;
    struct {
        int64_t min_words, max_words, min_stop_words;
        double min_word_chars, max_word_chars, max_symbols, max_bullets, max_ellipses;
        double min_alphabetic;
    } gopher;
    struct {
        double max_lines, max_line_chars, max_paragraphs, max_paragraph_chars;
        double top[3];      // of runs of 2, 3 and 4 words
        double repeated[6]; // of runs of 5 to 10 words
    } repetition;
    struct {
        int64_t min_line_words, min_sentences;
        bool end_mark, braces;
    } c4;
    struct {
        double min_end_marks, max_short_lines, max_duplicate_chars, max_newlines;
        int64_t short_line_chars;
    } fineweb;
    struct {
        const char *email, *ip, *phone, *number;
    } pii;
    struct {
        bool nfc, twice_encoded;
        double max_malformed;
    } repair;
    struct {
        option_list drop, keep;
    } regex;
    struct {
        int64_t max_line_chars, max_mean_line_chars;
        double min_alphanumeric;
        bool licence_header;
    } code;
    struct {
        option_list keep;
        double min_score, min_known;
    } language;
    struct {
        option_list files;
        int64_t ngram, min_words;
    } decontaminate;
    struct {
        const char *model;
        double max_bits, min_bits;
        int64_t bytes;
        const filter_scorer *scorer; // the caller's, set before documents are filtered
    } quality;
} filter_config;

typedef struct filter_run filter_run; // the filters of one thread

typedef struct data_filter {
    const char *name;
    const char *about;  // one sentence for the reference
    const option *rows; // of filter_config
    int64_t row_count;
    const char *const *rules; // names of the reasons to drop a document; ends with NULL
    int64_t version;          // increment when the filter drops or writes something else
    // Makes what the filter prepares once for a thread; both NULL: nothing.
    status (*open)(const host *h, const filter_config *c, void **state);
    void (*close)(void *state); // NULL is legal
    // Sets *rule to the index of the rule that drops the text, or leaves it at -1. May change the
    // text through filter_replace.
    status (*apply)(filter_run *r, int *rule);
} data_filter;

extern const data_filter *const data_filters[]; // ends with NULL
const data_filter *data_filter_find(const char *name);

// The filters of a build, in order, for one thread. filter_run_open refuses an unknown name.
NODISCARD status filter_run_open(const host *h, const filter_config *c, const option_list *names,
                                 filter_run **out);
void filter_run_close(filter_run *r); // NULL is legal

// A verdict: the filter and rule that drop the document, or filter = NULL.
typedef struct filter_verdict {
    const data_filter *filter; // NULL: the document stays
    int rule;
    bool changed; // the text was changed
} filter_verdict;
// Applies all filters to a text; *bytes and *count become the text that stays, which is borrowed
// until the next call. keeps: filters change the text, but none drops it.
NODISCARD status filter_run_apply(filter_run *r, bool keeps, const char **bytes, int64_t *count,
                                  filter_verdict *out);

#ifdef __cplusplus
}
#endif
#endif
