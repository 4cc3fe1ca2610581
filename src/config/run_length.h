// The length of a run: train.steps follows from train.tokens or train.epochs, if one is given.
#ifndef CONFIG_RUN_LENGTH_H
#define CONFIG_RUN_LENGTH_H

#include "config/run_config.h"

// Chooses between the three keys, of which the command line's replace the file's; two of them are
// refused. Sets train.steps from train.tokens. With train.epochs it is the largest number until
// run_length_of_epochs(). Called by run_config_follow().
NODISCARD status run_length_choose(run_config *r, const config *c, arena *a);
// Sets train.steps from train.epochs, if it is given, for data of so many sequences, and checks
// again what depends on it.
NODISCARD status run_length_of_epochs(run_config *r, const config *c, arena *a, int64_t sequences);

#endif
