// A chain of commands in one file: data -> pretrain -> adapt -> sft -> dpo, or reward and grpo ->
// eval -> gate -> export.
//
//   DIR/NAME-KEY/   one run of a stage; KEY is a hash of the stage and of all that goes into it
//     out           what it makes: a corpus, a run, results, a record, an exported model
//     log           what its command said
//     stage.json    written last: the stage is finished, with the digest of what it made
//   DIR/spent       seconds used so far
//
// A stage whose stage.json exists is skipped; one without is started again, and its command
// continues where it was. So nothing depends on when a chain was ended.
//
//   stages_config.c   the file
//   stages_key.c      what goes into a stage, and the digest of what it made
//   stages_run.c      its command as a child process, the budget
#ifndef CLI_STAGES_STAGES_H
#define CLI_STAGES_STAGES_H

#include "cli/gate/gate.h"

enum { STAGES_MAX = 64, STAGE_NAME_BYTES_MAX = 64, STAGE_KEY_SHOWN = 12 };

typedef enum stage_kind {
    STAGE_AUTO, // by its name
    STAGE_DATA,
    STAGE_TRAIN, // objective as in the configuration; also "adapt"
    STAGE_ADAPT,
    STAGE_PRETRAIN,
    STAGE_SFT,
    STAGE_DPO,
    STAGE_REWARD,
    STAGE_GRPO,
    STAGE_EVAL,
    STAGE_GATE,
    STAGE_EXPORT
} stage_kind;

typedef struct stage {
    const char *name;
    int32_t kind; // stage_kind
    const char *config, *from, *data, *of, *gate, *policy;
    option_list keys, flags, tasks;
    // Set while the chain runs.
    char key[GATE_HEX_BYTES], digest[GATE_HEX_BYTES];
    char *folder, *out;
    double seconds;
    bool is_skipped;
} stage;

typedef struct stages {
    cli_context *cli;
    const char *file, *home; // home: the file's folder, from which commands run
    const char *dir, *budget;
    double price; // dollars an hour
    int64_t count;
    double budget_s, spent_s; // budget_s 0: none
    bool is_quiet;
    stage list[STAGES_MAX];
} stages;

NODISCARD status stages_load(cli_context *cli, const char *path, stages *out);
bool stage_is_training(const stage *s);
const char *stage_kind_name(int32_t kind);
// The stage of this name before stage `before`; NULL: none.
stage *stages_find(stages *v, const char *name, int64_t before);

// Sets key, folder and out of stage i, whose predecessors are finished.
NODISCARD status stage_key(stages *v, int64_t i);
// Hashes what a finished command made.
NODISCARD status stage_digest(stages *v, stage *s);
// The words of its command, ending with NULL.
NODISCARD status stage_words(stages *v, int64_t i, char ***out);

// Runs the stage's command to its end. ST_STOPPED: the budget is used up, or a signal came.
NODISCARD status stage_run(stages *v, int64_t i);
NODISCARD status stages_spent_read(stages *v);

#endif
