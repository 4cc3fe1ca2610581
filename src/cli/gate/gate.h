// A release gate: a model's results against a policy, and the record that `export --gated` asks
// for.
//
//   policy.c      the policy file, and hashes of files and folders
//   results.c     tasks on the model and on its baseline; significance
//   checks.c      bounds, regressions, licences
//   approvals.c   signatures of the statement
//   record.c      the record, written and read
#ifndef CLI_GATE_GATE_H
#define CLI_GATE_GATE_H

#include "cli/model_folder.h"

enum { GATE_HEX_BYTES = 65 }; // SHA-256 in hex digits

typedef struct gate_policy {
    const char *path, *name;
    int64_t version;
    option_list tasks;
    int64_t limit;
    const char *template_name;
    option_list require; // "arc.acc >= 0.3"
    const char *baseline;
    option_list no_worse; // "arc.acc"
    double significance, tolerance;
    option_list licences;
    int64_t approvals;
    const char *signers;
    char hash[GATE_HEX_BYTES]; // of the file
} gate_policy;

// A metric of a task. Errors and p are negative where there is none.
typedef struct gate_result {
    const char *task, *metric;
    double value, error;
    int64_t items;
    bool has_baseline;
    double base_value, base_error, p; // p: of the model being no worse than the baseline
    const char *method;               // of p: "sign test", "paired", "unpaired"; "": none
} gate_result;

typedef struct gate_check {
    const char *kind, *what, *found; // "bound", "arc.acc >= 0.3", "0.31 +- 0.02"
    bool is_passed;
} gate_check;

typedef struct gate_results {
    gate_result *items;
    int64_t count, capacity;
} gate_results;

typedef struct gate_checks {
    gate_check *items;
    int64_t count, capacity;
} gate_checks;

typedef struct gate {
    cli_context *cli;
    gate_policy policy;
    cli_model model;
    const char *operand, *record_path, *folder; // folder: of record and statement
    char model_hash[GATE_HEX_BYTES];
    char evidence[GATE_HEX_BYTES]; // tasks, their data, baseline
    char statement_hash[GATE_HEX_BYTES];
    int64_t threads;
    gate_results results;
    gate_checks checks;
    bool is_reused; // the results are those of an earlier record
} gate;

NODISCARD status gate_policy_load(cli_context *cli, const char *path, gate_policy *out);
// SHA-256 of a file; of the names and contents of a folder's files (README.md does not count).
NODISCARD status gate_hash_file(cli_context *cli, const char *path, char out[GATE_HEX_BYTES]);
NODISCARD status gate_hash_folder(cli_context *cli, const char *folder, char out[GATE_HEX_BYTES]);
void gate_hash_text(const char *bytes, int64_t count, char out[GATE_HEX_BYTES]);
// Hashes the task files, their data and the baseline.
NODISCARD status gate_evidence(gate *g);

// Runs the policy's tasks on the model, and on its baseline.
NODISCARD status gate_results_make(gate *g);
const gate_result *gate_result_find(const gate_results *r, const char *name); // "arc.acc"; or NULL
// The chance of a difference at least as bad if the model is no worse: of 0 and 1 by the exact sign
// test over the items that differ, of other values by their mean difference.
double gate_paired_p(const double *model, const double *baseline, int64_t count,
                     bool lower_is_better, const char **method);
bool gate_lower_is_better(const char *metric);

NODISCARD status gate_check_add(gate *g, const char *kind, const char *what, bool is_passed,
                                const char *format, ...) PRINTF_LIKE(5, 6);
NODISCARD status gate_checks_make(gate *g); // all but approvals
NODISCARD status gate_approvals_check(gate *g);

// The licences of the run's training data: a line of each source. NULL: not known.
typedef struct gate_source {
    const char *name, *licence, *generator; // licence NULL: not known
} gate_source;
NODISCARD status gate_sources_find(cli_context *cli, const cli_model *model, gate_source **out,
                                   int64_t *count);

// The text that approvals sign.
NODISCARD status gate_statement(const gate *g, text *out);
NODISCARD status gate_record_write(gate *g);
// Takes the results of an earlier record of the same model, policy and evidence.
NODISCARD status gate_record_reuse(gate *g);
// The record of a model; *path NULL: its usual place.
NODISCARD status gate_record_place(cli_context *cli, const char *operand, const char **path);
// Refuses without a record that passed and whose hashes are those of the model now.
typedef struct gate_passed {
    const char *policy_name, *policy_hash, *model_hash;
    int64_t policy_version;
    gate_results results;
    gate_checks checks;
} gate_passed;
NODISCARD status gate_record_require(cli_context *cli, const char *operand, const cli_model *model,
                                     const char *record, gate_passed *out);

#endif
