// `digest`: prints one hash of all weights and optimizer state, for scripts that compare runs.
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/run_folder.h"

static status run(cli_context *cli, const cli_call *call)
{
    char *path = NULL, hex[33];
    hash128 digest;
    TRY(cli_checkpoint_of(cli, call->operands[0], &path));
    TRY(ckpt_digest(cli->h, cli->a, path, &digest));
    cli_print(cli, "%s\n", hash128_text(digest, hex));
    return ST_OK;
}

const cli_command cli_command_digest = {
    .name = "digest",
    .summary = "print one hash of a run's weights and optimizer state",
    .synopsis = "RUN|CHECKPOINT",
    .about =
        "Prints only 32 hex digits: a hash of all weights and optimizer state in logical order, from "
        "the bytes of the files. For a run it reads the newest complete checkpoint. Equal digests "
        "mean equal states, whatever the layout that made them.",
    .examples = "  trireme digest demo/run\n",
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
