// Identifies files and folders, by a magic number if the format has one and otherwise by name, and
// reports facts about them. A family: a row per kind in inspect_kinds.c, and a function that
// inspects.
//
// To add one: the row, and a function that adds facts and, if `verifies` is set, checks the whole
// contents. The function's status reports a file that cannot be opened; each later fault is a line
// of damage.
#ifndef CLI_INSPECT_INSPECT_H
#define CLI_INSPECT_INSPECT_H

#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "data/tokenizer.h"

typedef struct inspect_fact {
    const char *name, *value;
    bool is_number; // printed without quotes in JSON
} inspect_fact;

typedef struct inspect_tensor {
    const char *name, *file; // file: base name; NULL if there is only one
    dtype type;
    int ndim;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    int64_t offset, bytes;
} inspect_tensor;

typedef struct inspect_report {
    cli_context *cli;
    const char *path, *kind;   // kind: "safetensors"
    bool verifies, lists;      // of --verify, --tensors
    bool scans;                // `data inspect`: reads every token and text; damage is a status
    int64_t vocab;             // ids must be below it; 0: the file's own
    data_tokenizer *tokenizer; // counts the tokens of texts; NULL: no count
    inspect_fact *facts;
    int64_t fact_count, fact_capacity;
    inspect_tensor *tensors; // all tensors, listed or not
    int64_t tensor_count, tensor_capacity;
    text damage;          // one line per fault, with line ends
    int64_t damage_count; // includes faults beyond the printed ones
    const char *checked;  // extent of --verify: "every byte of 12 tensors"; NULL: no check exists
} inspect_report;

NODISCARD status inspect_add(inspect_report *r, const char *name, const char *format, ...)
    PRINTF_LIKE(3, 4);
NODISCARD status inspect_add_int(inspect_report *r, const char *name, int64_t value);
NODISCARD status inspect_add_tensor(inspect_report *r, const inspect_tensor *t);
NODISCARD status inspect_checked(inspect_report *r, const char *format, ...) PRINTF_LIKE(2, 3);
NODISCARD status inspect_damage(inspect_report *r, const char *format, ...) PRINTF_LIKE(2, 3);
// Converts the error of a check to a line of damage if it says that the file is bad; other errors
// (no memory, no such file) stay errors.
NODISCARD status inspect_take(inspect_report *r, status st);
void inspect_print(const inspect_report *r);
void inspect_print_facts(const inspect_report *r, const char *indent);
NODISCARD status inspect_add_json(const inspect_report *r, text *t); // an object, no line end
// Verifies a file inside a folder that is being verified; its damage is added to this report.
NODISCARD status inspect_within(inspect_report *r, const char *path);

// ---- kinds --------------------------------------------------------------------------------------
typedef struct inspect_probe {
    const char *path, *name; // name: after the last slash
    file_info info;
    uint8_t head[512]; // the first bytes, zero beyond the end
    int64_t head_bytes;
    file_names names; // names in a folder
    bool is_tokens;
} inspect_probe;
bool inspect_has(const inspect_probe *p, const char *name); // in the folder
bool inspect_ends(const inspect_probe *p, const char *end);

typedef struct inspect_kind {
    const char *name;
    bool (*fits)(const inspect_probe *p);
    status (*look)(inspect_report *r, const inspect_probe *p);
} inspect_kind;

NODISCARD status inspect_probe_make(cli_context *cli, const char *path, inspect_probe *out);
const inspect_kind *inspect_kind_of(const inspect_probe *p); // never NULL

// Functions of the table, each in the file named in its comment.
status inspect_safetensors(inspect_report *r, const inspect_probe *p); // inspect_model.c
status inspect_hf_folder(inspect_report *r, const inspect_probe *p);
status inspect_hf_config(inspect_report *r, const inspect_probe *p);
status inspect_checkpoint(inspect_report *r, const inspect_probe *p); // inspect_run.c
status inspect_run(inspect_report *r, const inspect_probe *p);
status inspect_config(inspect_report *r, const inspect_probe *p);
// inspect_repair.c: from: NULL: only the checkpoints that belong to the same run.
NODISCARD status inspect_repair(cli_context *cli, const char *path, const char *from);
// inspect_faults.c
NODISCARD status inspect_faults(cli_context *cli, const char *run, bool json);
// inspect_experts.c
NODISCARD status inspect_experts(cli_context *cli, const char *run, bool json);
status inspect_metrics(inspect_report *r, const inspect_probe *p); // inspect_logs.c
status inspect_tfevents(inspect_report *r, const inspect_probe *p);
status inspect_json(inspect_report *r, const inspect_probe *p);
status inspect_tokens(inspect_report *r, const inspect_probe *p); // inspect_data.c
status inspect_text(inspect_report *r, const inspect_probe *p);
status inspect_tokenizer(inspect_report *r, const inspect_probe *p);

// ---- two of them --------------------------------------------------------------------------------
typedef struct inspect_diff_options {
    bool json;
    int64_t shown; // number of worst tensors in the list
} inspect_diff_options;
// ST_ANSWER_NO if they differ at all.
NODISCARD status inspect_diff(cli_context *cli, const char *a, const char *b,
                              const inspect_diff_options *options);
// Compares the two config.json and reports a line for each key that differs; no line if one of them
// does not exist, as for a single file.
typedef status inspect_tell(void *context, const char *line);
NODISCARD status inspect_diff_configs(cli_context *cli, const char *folder_a, const char *folder_b,
                                      inspect_tell *tell, void *context);

#endif
