// The output of a run, on the terminal or in a log, and in the files of its folder.
#ifndef CLI_TRAIN_RUN_LOG_H
#define CLI_TRAIN_RUN_LOG_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct run_log run_log;

// For people and STATUS: the end of a run by a second ^C.
#define RUN_LOG_QUIT        "a second SIGINT ended the run at once, without a checkpoint"
#define RUN_LOG_QUIT_STATUS "failed 130 " RUN_LOG_QUIT "\n"

// r must outlive the log. The log opens files with the first line, because train_run() makes the
// run's folder. Rank 0 writes log.txt. This process writes logs/rank-<rank>.log, unless `is_kept`:
// then the process that keeps this one's output writes it.
NODISCARD status run_log_create(cli_context *cli, const run_config *r, bool quiet, int rank,
                                bool is_kept, run_log **out);
// Lines on the terminal begin with this name: several runs write there.
void run_log_name(run_log *log, const char *name);
train_watcher run_log_watcher(run_log *log);
// Prints the last lines (totals and the next command, or the error as JSON) and closes the files.
void run_log_end(run_log *log, status st, const train_outcome *outcome);

// The first line, before any work: program and run.
NODISCARD status run_log_print_head(const char *run_dir, text *out);
// The lines after it: model, data and machine. Also for a dry run.
NODISCARD status run_log_print_start(const train_start *start, text *out);

#endif
