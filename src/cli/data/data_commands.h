// Subcommands of `data` that have a file of their own.
#ifndef CLI_DATA_DATA_COMMANDS_H
#define CLI_DATA_DATA_COMMANDS_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "data/corpus.h"
#include "train/loader.h"

typedef struct data_flags {
    const char *tokenizer, *out;
    int64_t sequences, vocab;
    int64_t step;                     // of trace; 0: not given
    const char *document;             // of trace
    int32_t special_tokens, on_error; // in the order of their choices
    bool json;
} data_flags;

// Reads the configuration that the second operand names, and opens its data.
NODISCARD status data_loader_open(cli_context *cli, const cli_call *call, run_config **r,
                                  train_loader **loader);
// Progress of a build on the terminal: `context` is a data_building with its cli.
typedef struct data_building {
    cli_context *cli;
    corpus_pass pass;
    int64_t begin_ns, begin_done, begin_tokens; // of the pass
    bool has_begun;
} data_building;
NODISCARD status data_build_progress(void *context, corpus_pass pass, int64_t done, int64_t all,
                                     int64_t tokens);
NODISCARD status data_keys(cli_context *cli);
NODISCARD status data_build(cli_context *cli, const cli_call *call);
// Shows `count` samples of what each rule of a finished corpus dropped.
NODISCARD status data_dropped(cli_context *cli, const char *folder, int64_t count);
NODISCARD status data_review(cli_context *cli, const cli_call *call);
NODISCARD status data_trace(cli_context *cli, const cli_call *call);
NODISCARD status data_audit(cli_context *cli, const cli_call *call);

#endif
