// The model of a run's configuration, whose vocabulary may come from the tokenizer.
#ifndef CLI_RUN_MODEL_H
#define CLI_RUN_MODEL_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "config/run_config_readers.h"
#include "model/model.h"

// Opens the tokenizer if it determines the vocabulary, and sets r->model.vocab from it.
// *vocab_is_known is false if the tokenizer is missing; out->vocab is then the preset's, or 0.
NODISCARD status cli_run_model(cli_context *cli, run_config *r, decoder_spec *out,
                               bool *vocab_is_known);

// Warns of each key of the command line that none of `readers` (RUN_READER_*) reads.
void cli_warn_unread(cli_context *cli, const char *const *keys, int64_t count, int readers);

#endif
