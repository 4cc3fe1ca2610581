// The scorer of texts for the filter quality.
#ifndef CLI_DATA_DATA_QUALITY_H
#define CLI_DATA_DATA_QUALITY_H

#include "cli/cli.h"
#include "data/filter.h"

// cli is borrowed while the scorer is used.
void data_quality_init(cli_context *cli, filter_scorer *out);

#endif
