// Generation tasks: prompts, the model's answers, and whether they are right.
#ifndef INFER_TASK_ANSWERS_H
#define INFER_TASK_ANSWERS_H

#include "data/chat.h"
#include "infer/infer.h"
#include "infer/task.h"

typedef struct task_answer {
    char *text;
    int64_t bytes, tokens;
    bool by_length;           // it ended at max_tokens
    const char *extracted[2]; // [answer_part]; NULL: not compared
    bool is_right[2];
    bool is_matched; // one of `match` matches
    bool is_passed;  // by the command
    char ended[24];  // how the command ended: "exit 1", "signal 9", "time limit"
} task_answer;

typedef struct task_prompt {
    int32_t *ids;
    int64_t count;
    const char *target; // NULL: none
    int64_t target_bytes;
    char *line; // of the data, for the program's template
    int64_t line_bytes, line_number;
    task_answer *answers; // [samples]
} task_prompt;

typedef struct task_prompts {
    task_prompt *items;
    int64_t count, capacity;
    int64_t longest; // tokens of the longest prompt
    int64_t cut;     // prompts that lost their front
} task_prompts;

// Reads and encodes the prompts; limit 0: all. context: the model's; a prompt and its answer fit in
// it, or the prompt loses its front. chat: prompts are a user's messages; NULL: texts.
NODISCARD status task_prompts_read(const host *h, arena *a, data_tokenizer *t,
                                   const task_spec *spec, data_chat *chat, int64_t context,
                                   int64_t limit, task_prompts *out);

// Generates all answers. ends: tokens that end an answer. The watcher is called after every step.
typedef struct task_model {
    infer *g;
    data_tokenizer *t;
    const int32_t *ends;
    int64_t end_count;
} task_model;
NODISCARD status task_generate(const task_model *m, arena *a, const task_spec *spec,
                               task_prompts *prompts, const task_watcher *watcher);
// Finds early what would keep task_grade() from working: expressions, templates, the machine.
NODISCARD status task_grade_check(const host *h, arena *a, const task_spec *spec);
// Compares and tries the answers. processors: commands at once.
NODISCARD status task_grade(const host *h, arena *a, const task_spec *spec, task_prompts *prompts,
                            int64_t processors, const task_watcher *watcher, task_result *out);
// The metric's value of each prompt; NULL for a metric that is no mean over prompts.
NODISCARD status task_values(arena *a, const task_spec *spec, const task_prompts *prompts,
                             const char *metric, double **out);

#endif
