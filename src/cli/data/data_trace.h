// State of `data trace`, shared by its files. Private to this folder.
#ifndef CLI_DATA_DATA_TRACE_H
#define CLI_DATA_DATA_TRACE_H

#include "cli/data/data_commands.h"
#include "data/dataset.h"
#include "train/excluded.h"

typedef struct trace {
    cli_context *cli;
    const data_flags *f;
    run_config *r;
    train_loader *loader;
    const data_dataset *d;
    const data_prompts *prompts; // in place of the dataset; NULL: none
    int64_t step, sequence;      // under way
    int64_t lines;               // printed
    // Exclusions of the run by step, and those that the dataset has now.
    bool is_run;
    train_excluded *excluded;
    int64_t excluded_count;
    const train_excluded *hidden;
} trace;

// Hides what the run had left out in this step.
NODISCARD status data_trace_hide(trace *t, int64_t step);
// Sequences that the steps before `step` consume.
int64_t data_trace_before(const trace *t, int64_t step);
void data_trace_print_hit(trace *t, const char *note);
// The text of an "id" as JSON; null: it has none.
NODISCARD status data_trace_add_id(text *line, const char *id, int64_t bytes);

// The same for samples of conversations and for prompts: those of step --step, and the steps of
// --document.
NODISCARD status data_trace_samples(trace *t);
NODISCARD status data_trace_prompts(trace *t);

#endif
