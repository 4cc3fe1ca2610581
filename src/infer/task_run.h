// A whole task on a model's folder: opens the model for what the task needs, runs it, closes it.
#ifndef INFER_TASK_RUN_H
#define INFER_TASK_RUN_H

#include "infer/task_answers.h"

typedef struct task_run_args {
    const host *h;
    const char *folder; // as infer_open()
    const decoder_spec *spec;
    data_tokenizer *tokenizer;
    data_chat *chat;           // of generation tasks; NULL: prompts are texts
    int64_t seq, limit, batch; // 0: the model's context; all; chosen
    infer_options options;     // without context and slots
    int64_t processors;        // for commands
    const task_watcher *watcher;
} task_run_args;

typedef struct task_outcome {
    task_result result;
    task_items items;     // of multiple choice, with scores
    task_prompts prompts; // of generation, with answers
} task_outcome;

// `a` holds the outcome.
NODISCARD status task_run(const task_run_args *args, arena *a, const task_spec *spec,
                          task_outcome *out);

// The metric's value of each item, for a comparison of two models item by item; NULL for a metric
// that is no mean over items.
NODISCARD status task_outcome_values(arena *a, const task_spec *spec, const task_outcome *o,
                                     const char *metric, double **out, int64_t *count);

enum { INFER_ENDS_MAX = 64 };
typedef struct infer_end_ids {
    int32_t ids[INFER_ENDS_MAX];
    int64_t count;
} infer_end_ids;
// The tokens that end a text: eos_token_id of the folder's files, one or several; the ends of the
// chat template (NULL: none); the tokenizer's end of text.
NODISCARD status infer_ends_find(const host *h, arena *a, const char *folder, int64_t vocab,
                                 const data_tokenizer *t, const data_chat *chat,
                                 infer_end_ids *out);
// Opens the model with options->slots sequences at once, or fewer if memory is short: it puts there
// how many.
NODISCARD status infer_open_fitting(const host *h, arena *a, const char *folder,
                                    infer_options *options, infer **out);

#endif
