// `eval --task FILE`: tasks from task files, as a table or as JSON.
#ifndef CLI_INFER_EVAL_TASKS_H
#define CLI_INFER_EVAL_TASKS_H

#include "cli/model_folder.h"
#include "infer/task.h"

typedef struct eval_tasks_args {
    const cli_model *model;
    data_tokenizer *tokenizer;
    const char *const *files;
    int64_t file_count;
    int64_t seq, limit, batch;  // 0: the model's context; all; about 4096 tokens
    infer_options options;      // without context and slots
    const char *items_path;     // JSON lines with the scores or answers of each item; NULL: none
    const char *template_name;  // of conversations, for generation; NULL: prompts are texts
    const char *tokenizer_name; // --tokenizer; NULL: the model's own
    bool json;
    void *context;
    void (*progress)(void *context, double share, const char *message);
    void (*progress_end)(void *context);
} eval_tasks_args;

NODISCARD status eval_tasks(cli_context *cli, const eval_tasks_args *args);

#endif
