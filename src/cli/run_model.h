// The model of a run's configuration, whose vocabulary may come from the tokenizer.
#ifndef CLI_RUN_MODEL_H
#define CLI_RUN_MODEL_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "model/model.h"

// Opens the tokenizer if it determines the vocabulary, and sets r->model.vocab from it.
// *vocab_is_known is false if the tokenizer is missing; out->vocab is then the preset's, or 0.
NODISCARD status cli_run_model(cli_context *cli, run_config *r, decoder_spec *out,
                               bool *vocab_is_known);

#endif
