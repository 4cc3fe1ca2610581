// The model card of an exported folder, README.md: what the program knows, and that it knows no
// more.
#ifndef CLI_GATE_CARD_H
#define CLI_GATE_CARD_H

#include "cli/gate/gate.h"

// parameters: 0 for an adapter alone. passed: the record of the gate; NULL: the model has passed
// none.
NODISCARD status gate_card_write(cli_context *cli, const cli_model *model, int64_t parameters,
                                 const gate_passed *passed, const char *folder);

#endif
