// Pages of the catalogue: one entry, or the entries of one kind.
#ifndef CLI_EXPLAIN_CATALOG_PAGES_H
#define CLI_EXPLAIN_CATALOG_PAGES_H

#include "catalog/catalog.h"
#include "cli/cli.h"

// Adds `head`, padded to `width`, and the text in a column of its own.
NODISCARD status catalog_column_add(cli_context *cli, text *t, const char *head, int width,
                                    const char *content);
// Adds the sources of `of`, and its keys without one.
NODISCARD status catalog_notes_add(cli_context *cli, text *t, const char *of,
                                   const catalog_notes *n);
// Pages with figures that are easily confused side by side.
NODISCARD status catalog_prices_page(cli_context *cli, const char *name, text *t);
// The devices of all lists in one table.
NODISCARD status catalog_prices_table(cli_context *cli, text *t);
NODISCARD status catalog_cluster_page(cli_context *cli, const char *name, text *t);
NODISCARD status catalog_device_page(cli_context *cli, const char *name, text *t);
NODISCARD status catalog_run_page(cli_context *cli, const char *name, text *t);
NODISCARD status catalog_model_page(cli_context *cli, const char *name, text *t);

#endif
