// Evaluation tasks from a small YAML file and a data file, with the definitions of
// lm-evaluation-harness. Multiple choice and perplexity score given texts; generation tasks
// (task_answers.h) compare a model's answers, or try them.
//
//   kind: multiple_choice                     kind: perplexity
//   data: arc.jsonl                           data: wiki.txt
//   context: "Question: {{ question }}\nAnswer:"
//   choices: choices.text
//   labels: choices.label
//   gold: answerKey
//   shots: 5
//   shots_data: arc_train.jsonl
//
// `context` is a template (data/jinja.h) whose variables are the members of a line; choices, labels
// and gold are names of members, with dots into objects. gold is the number of the right choice,
// its text, or one of `labels`.
#ifndef INFER_TASK_H
#define INFER_TASK_H

#include "base/format/options.h"
#include "data/tokenizer.h"
#include "infer/evaluate.h"

typedef enum task_kind { TASK_KIND_CHOICE, TASK_KIND_PERPLEXITY, TASK_KIND_GENERATION } task_kind;

typedef struct task_spec {
    const char *file, *name;
    int32_t kind; // task_kind
    const char *data, *context, *choices, *labels, *gold, *delimiter, *prefix, *shots_data;
    const char *separator; // between two shots, and between the last one and the context
    int64_t shots;
    // Generation: how answers are sampled, ...
    option_list stop, pass;
    int64_t max_tokens, top_k, samples, seed;
    double temperature, top_p;
    // ... compared with the target, ...
    const char *target, *extract, *extract_last;
    option_list ignore, match;
    bool ignore_case, ignore_punctuation, ignore_numbers;
    // ... and tried by a command.
    const char *program, *program_file, *command;
    int64_t time_limit_ns, memory_limit_bytes, process_limit;
} task_spec;

enum { TASK_CHOICES_MAX = 64, TASK_PASS_MAX = 8 };

typedef struct task_choice {
    int32_t *ids;              // context and choice
    int64_t count, context;    // tokens; those of the context
    int64_t characters, bytes; // of the choice's text
    double score;              // sum of log-probabilities; set by scoring
} task_choice;

typedef struct task_item {
    task_choice *choices;
    int64_t choice_count, gold;
} task_item;

typedef struct task_items {
    task_item *items;
    int64_t count, capacity;
    int64_t longest; // tokens of the longest choice with its context
} task_items;

// A mean over items with its standard error: for a share, sqrt(p (1 - p) / (n - 1)).
typedef struct task_share {
    double value, error;
} task_share;

typedef struct task_result {
    int64_t items; // or documents
    // Multiple choice: the choice with the highest sum of log-probabilities is right; the same with
    // the sum divided by the choice's characters, or by its bytes.
    task_share acc, acc_norm, acc_bytes;
    // Perplexity: sums over all documents.
    int64_t tokens, bytes, words;
    double nats;
    // Generation: an item's value is the mean over its answers. Negative values: not asked for.
    // passed: by the command. pass: pass@k of `passed`, or of `exact` without a command.
    task_share exact, exact_last, matched, passed, pass[TASK_PASS_MAX];
    int64_t cut;       // prompts that lost their front
    int64_t long_ends; // answers that ended by their length
    unsigned confined; // sandbox_confined of the commands
} task_result;

NODISCARD status task_load(const host *h, arena *a, const char *path, task_spec *out);
// Reads and encodes the items of a multiple choice task; limit 0: all.
NODISCARD status task_read(const host *h, arena *a, data_tokenizer *t, const task_spec *spec,
                           int64_t limit, task_items *out);

// Called after every batch; true ends with ST_STOPPED. May be NULL. all: 0 where it is unknown.
typedef struct task_watcher {
    void *context;
    bool (*scored)(void *context, const char *unit, int64_t done, int64_t all);
} task_watcher;
// Sets every choice's score. A text longer than the scorer's rows loses its front.
NODISCARD status task_score(infer_scorer *s, arena *a, const task_items *items,
                            const task_watcher *watcher, task_result *out);
// The place of the likeliest choice; by: 0 the sum, 1 divided by characters, 2 by bytes.
int64_t task_best(const task_item *item, int by);
// Perplexity of whole documents in windows: each predicts as many tokens as a row has; the first
// begins with the prefix token, each other one with a token of context, and the last one has as
// much context as fits.
NODISCARD status task_perplexity(infer_scorer *s, const host *h, arena *a, data_tokenizer *t,
                                 const task_spec *spec, int64_t limit, const task_watcher *watcher,
                                 task_result *out);
// The id of the token before a text that has no context: the task's, or end-of-text.
NODISCARD status task_prefix(const data_tokenizer *t, const task_spec *spec, int32_t *out);

// A result by its name: "acc", "exact_match", "pass@10", "word_perplexity".
enum { TASK_METRICS_MAX = 16 };
typedef struct task_metric {
    char name[40];
    double value, error; // error: standard error; negative: there is none
    const char *meaning; // in a few words
} task_metric;
// Returns how many there are.
int64_t task_metrics(const task_spec *spec, const task_result *r,
                     task_metric out[TASK_METRICS_MAX]);

#endif
