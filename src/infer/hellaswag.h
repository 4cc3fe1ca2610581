// HellaSwag: the most likely of several endings under the model. Source: Zellers et al. 2019,
// arXiv:1905.07830. The score follows lm-evaluation-harness: the tokenizer encodes the context, a
// space and the ending as one text; an ending's score is the sum of the log-probabilities of its
// tokens.
#ifndef INFER_HELLASWAG_H
#define INFER_HELLASWAG_H

#include "data/tokenizer.h"
#include "infer/evaluate.h"

enum { HELLASWAG_ENDINGS_MAX = 16 };

typedef struct hellaswag_ending {
    int32_t *ids; // context and ending
    int64_t count, context;
    int64_t bytes; // of the ending's text
    double score;  // sum of log-probabilities; set by scoring
} hellaswag_ending;

typedef struct hellaswag_example {
    int64_t ending_count, label;
    hellaswag_ending *endings;
} hellaswag_example;

typedef struct hellaswag_list {
    hellaswag_example *items;
    int64_t count, capacity;
    int64_t longest; // tokens of the longest ending with its context
} hellaswag_list;

// Adds the examples of a file (perhaps .gz, .zst), until the list has `limit` of them (0: all):
// JSON lines {"ctx", "endings", "label"}, or six lines for each: context, label, four endings.
NODISCARD status hellaswag_read(const host *h, arena *a, data_tokenizer *t, const char *path,
                                int64_t limit, hellaswag_list *list);

typedef struct hellaswag_result {
    int64_t count;
    double accuracy;      // accuracy of the likeliest ending by its sum
    double accuracy_norm; // accuracy by the sum divided by the ending's bytes
    double error;         // standard error of the accuracy
    double error_norm;
} hellaswag_result;

// Called after every batch with the number of endings done; true ends with ST_STOPPED.
typedef struct hellaswag_watcher {
    void *context;
    bool (*scored)(void *context, int64_t done, int64_t all);
} hellaswag_watcher;

// Sets every ending's score. A text longer than the scorer's rows loses its front.
NODISCARD status hellaswag_score(infer_scorer *s, arena *a, const hellaswag_list *list,
                                 const hellaswag_watcher *watcher, hellaswag_result *out);

#endif
