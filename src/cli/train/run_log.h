// What a run says: on the terminal or in a log, and in the files of its folder.
#ifndef CLI_TRAIN_RUN_LOG_H
#define CLI_TRAIN_RUN_LOG_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct run_log run_log;

// r must live as long as the log. Files are opened with the first line, for train_run() makes the
// run's folder. Rank 0 writes log.txt; logs/rank-<rank>.log is written here, or, where `is_kept`, by who
// keeps what this process prints.
NODISCARD status run_log_create(cli_context *cli, const run_config *r, bool quiet, int rank,
                                bool is_kept, run_log **out);
train_watcher run_log_watcher(run_log *log);
// Closes the files, after the last words: totals and what to do next, or the error as JSON.
void run_log_end(run_log *log, status st, const train_outcome *outcome);

// The lines on top: what is trained, on what, with what. Also of a dry run.
NODISCARD status run_log_print_start(const train_start *start, text *out);

#endif
