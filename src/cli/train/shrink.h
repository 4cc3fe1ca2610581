// The layout of a run with fewer ranks than its configuration asks for.
#ifndef CLI_TRAIN_SHRINK_H
#define CLI_TRAIN_SHRINK_H

#include "cli/train/ranks.h"

enum { CLI_LAYOUT_KEYS = 16 };
typedef struct cli_layout {
    const char *keys[CLI_LAYOUT_KEYS]; // "layout.dp=3", ...; none for the whole layout
    int64_t key_count;
    int64_t ranks, unused; // unused: processes without a place
    const char *words;     // "dp 3, tp 2"
} cli_layout;

// The layout for at most `available` ranks: that of the configuration if they suffice. Otherwise
// the one that keeps tp, then pp, then cp as they are, with the most data-parallel ranks; their
// shares of the batch may be uneven. Each candidate is checked as the configuration of a run.
NODISCARD status cli_shrink(cli_context *cli, const cli_start *order, int64_t available,
                            cli_layout *out);

#endif
