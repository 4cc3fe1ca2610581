// `catalog`: browses the figures that predictions are made from.
#include "cli/commands.h"
#include "cli/explain/explain.h"

static const option_table flags = {.title = "Flags", .rows = NULL, .count = 0};

static status run(cli_context *cli, const cli_call *call)
{
    return explain_catalog(cli, call->operand_count > 0 ? call->operands[0] : NULL,
                           call->operand_count > 1 ? call->operands[1] : NULL);
}

const cli_command cli_command_catalog = {
    .name = "catalog",
    .summary = "browse models, runs, devices, links, clusters, profiles, prices",
    .synopsis = "[KIND [NAME]] | NAME | FILE",
    .about =
        "Without an operand it lists every entry of every kind: models, runs, devices, links, clusters, "
        "profiles, prices. KIND lists one of them. A name shows one entry: its keys in the units of its file, "
        "where each value is from, its sources, which keys are assumed, and the tables of published "
        "figures that a profile was fitted on. FILE is a cluster of your own. An entry is a YAML file; "
        "`base: NAME` in a file of your own changes some of its keys.",
    .examples = "  trireme catalog\n"
                "  trireme catalog profiles\n"
                "  trireme catalog profiles megatron.h100\n"
                "  trireme catalog prices\n"
                "  trireme catalog h100\n",
    .flags = &flags,
    .flags_bytes = 0,
    .operand_min = 0,
    .operand_max = 2,
    .words = "models, runs, devices, links, clusters, profiles, prices",
    .run = run,
};
