// The model of a run's configuration, which may leave its vocabulary to the tokenizer.
#ifndef CLI_RUN_MODEL_H
#define CLI_RUN_MODEL_H

#include "cli/cli.h"
#include "config/run_config.h"
#include "model/model.h"

// The tokenizer is opened where it says the vocabulary, which r->model.vocab gets then. *vocab_is_known: false where it is
// not at hand; out->vocab is the preset's then, or 0.
NODISCARD status cli_run_model(cli_context *cli, run_config *r, decoder_spec *out,
                               bool *vocab_is_known);

#endif
